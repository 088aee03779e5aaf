// Finds items by any word about them: lookup key, title, op, module, shape, "nan". All words must occur.

import type { History } from "../data/history";
import { shapeText } from "../data/text";
import type { Graph } from "../scene/graph";

export interface Candidate {
  /** Ids of items that could stand for it, the best first. */
  ids: string[];
  title: string;
  note: string;
  text: string;
}

/** All that can be found: the graph's items, and the operations that a rolled or folded graph has no box for. */
export function candidatesOf(graph: Graph, history: History | null): Candidate[] {
  const nonFinite = history ? nonFiniteOps(history) : new Set<number>();
  const known = new Set<string>();
  const found = graph.items.map((item): Candidate => {
    known.add(item.id);
    const words = [item.key, item.title, ...item.lines, item.out, item.role];
    if (item.id.startsWith("op") && nonFinite.has(Number(item.id.slice(2)))) words.push("nan inf");
    return { ids: [item.id], title: item.title, note: [item.lines[0], item.out].filter(Boolean).join(" · "), text: words.join(" ").toLowerCase() };
  });
  return history ? [...found, ...hiddenOps(history, known, nonFinite)] : found;
}

function hiddenOps(history: History, known: Set<string>, nonFinite: Set<number>): Candidate[] {
  const { ops, functions, calls, modules, values, types } = history;
  const found: Candidate[] = [];
  for (let op = 0; op < ops.num; op++) {
    if (ops.layer[op] < 0 || known.has(`op${op}`)) continue;
    const label = ops.label[op];
    const address = modules.address[calls.module[ops.call[op]]] ?? "";
    const shapes = [...new Set(ops.outputs[op].map((value) => shapeText(types.shape[values.type[value]])))].join(" ");
    const text = [label, functions.name[ops.function[op]], address, shapes, nonFinite.has(op) ? "nan inf" : ""].join(" ").toLowerCase();
    found.push({ ids: [`op${op}`, `layer${ops.layer[op]}`], title: label, note: [address, shapes].filter(Boolean).join(" · "), text });
  }
  return found;
}

/** Ops that returned NaN or Inf. */
function nonFiniteOps({ ops, statistics }: History): Set<number> {
  const { value = [], num_nan = [], num_inf = [] } = statistics;
  const bad = new Set(value.filter((_, row) => num_nan[row] || num_inf[row]));
  const found = new Set<number>();
  if (bad.size) ops.outputs.forEach((outputs, op) => outputs.some((one) => bad.has(one)) && found.add(op));
  return found;
}

/** Indices of the texts that match; a query between slashes is a regular expression. */
export function searched(texts: readonly string[], query: string): number[] {
  const matches = matcher(query.trim().toLowerCase());
  const found: number[] = [];
  if (matches) texts.forEach((text, index) => matches(text) && found.push(index));
  return found;
}

function matcher(query: string): ((text: string) => boolean) | null {
  if (!query) return null;
  if (query.length > 2 && query.startsWith("/") && query.endsWith("/")) {
    try {
      const pattern = new RegExp(query.slice(1, -1));
      return (text) => pattern.test(text);
    } catch {
      return () => false;
    }
  }
  // Shapes as they are typed: 64x27, (64, 27), [64,27].
  const shaped = query.replace(/[()[\]]/g, "").replace(/(\d)\s*(?:x|,\s*)(?=\d)/g, "$1×");
  const words = shaped.split(/\s+/);
  return (text) => words.every((word) => text.includes(word));
}
