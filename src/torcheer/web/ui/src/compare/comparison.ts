// A comparison of two models as `views/comparison.py` writes it, and what it says about the boxes of both graphs.

import type { History } from "../data/history";
import type { Graph, Role } from "../scene/graph";

export interface Frame {
  file: string;
  line: number;
  function: string;
  text?: string;
}

export interface Place {
  op: string;
  function: string;
  aten: string;
  module: string;
  module_type: string;
  frame: Frame | null;
  stack: Frame[];
  params: string[];
  arguments: string;
}

/** Two tensors of one shape, subtracted. */
export interface Distance {
  num_elements: number;
  num_mismatched: number;
  max_abs: number | string;
  max_rel: number | string;
  largest_at: number[];
  value_a: number | string | null;
  value_b: number | string | null;
}

export interface Divergence {
  kind: string;
  headline: string;
  a: Place | null;
  b: Place | null;
  distance: Distance | null;
  heads: [string, string];
  why: string;
  confirmed: string;
}

/** The op and its module, without the line it stands in. */
export function shortName(one: Divergence): string {
  const place = one.kind === "missing" ? one.a : (one.b ?? one.a);
  return place ? `${place.op}${place.module ? ` in ${place.module}` : ""}` : one.headline;
}

export interface Comparison {
  names: [string, string];
  verdict: "equal" | "diverged" | "undetermined";
  reasons: string[];
  first_divergence: Divergence | null;
  candidates: Divergence[];
  outputs: { path_a: string; path_b: string; verdict: string; distance: Distance | null; tolerance: number; reason: string }[];
  gradients: { what: string; target: string; sources: string[]; step: number; verdict: string; error: number | null; reason: string }[];
  matches: { a: string; b: string; error: number; layout: string }[];
  notes: string[];
  num_ops: [number, number];
  num_matched: [number, number];
  sides?: [History, History] | null;
}

export type State = "matched" | "unmatched" | "differing";

/** How far the results of matched ops are apart, by item, on a logarithmic scale from the least to the greatest; a box has the most of what is in it. */
export function differencesOf(comparison: Comparison, graph: Graph, side: 0 | 1): Map<string, number> {
  const errors = new Map(comparison.matches.map((one) => [side === 0 ? one.a : one.b, one.error]));
  const place = comparison.first_divergence?.[side === 0 ? "a" : "b"];
  const known = [...errors.values()].filter((error) => error > 0).map(Math.log10);
  const low = Math.min(...known);
  const high = Math.max(...known);
  const heat = (error: number) => (error > 0 ? (high > low ? 0.1 + (0.8 * (Math.log10(error) - low)) / (high - low) : 0.5) : 0);
  const heats = graph.items.map((item) => {
    const label = item.key.replace(/:\d+$/, "");
    if (place && (place.op === item.key || place.op === label)) return 1;
    const error = errors.get(item.key) ?? errors.get(label);
    return item.role === "module" || error === undefined ? -1 : heat(error);
  });
  for (let at = graph.items.length - 1; at >= 0; at--) {
    const { parent } = graph.items[at];
    if (parent >= 0) heats[parent] = Math.max(heats[parent], heats[at]);
  }
  return new Map(graph.items.flatMap((item, at) => (heats[at] >= 0 ? [[item.id, heats[at]] as const] : [])));
}

/** What a box looks like: as it is where it is matched, as something missing or added where it is not. */
export const LOOKS: Record<State, Role | null> = { matched: null, unmatched: "changed", differing: "missing" };

/** A pair of labels both ways. Passes of a layer stand for one another by their number. */
export class Pairs {
  private readonly toB = new Map<string, string>();
  private readonly toA = new Map<string, string>();

  constructor(comparison: Comparison) {
    const first = comparison.first_divergence;
    if (first?.a && first.b) this.add(first.a.op, first.b.op);
    for (const { a, b } of comparison.matches) this.add(a, b);
  }

  private add(a: string, b: string): void {
    if (!this.toB.has(a)) this.toB.set(a, b);
    if (!this.toA.has(b)) this.toA.set(b, a);
  }

  other(side: 0 | 1, label: string): string | undefined {
    const pairs = side === 0 ? this.toB : this.toA;
    return pairs.get(label) ?? pairs.get(label.replace(/:\d+$/, ""));
  }

  has(side: 0 | 1, label: string): boolean {
    return this.other(side, label) !== undefined;
  }
}

/**
 * The state of every item of one side's graph; a box that holds others has the worst of theirs. A constant is not
 * recognised by its few numbers, and says nothing of the box around it.
 */
export function statesOf(comparison: Comparison, pairs: Pairs, graph: Graph, side: 0 | 1): Map<string, State> {
  const bad = new Set<string>();
  for (const one of [comparison.first_divergence, ...comparison.candidates]) {
    const place = side === 0 ? one?.a : one?.b;
    if (place) bad.add(place.op);
  }
  const states: State[] = graph.items.map((item) => {
    if (item.role === "module") return "matched";
    if (bad.has(item.key) || bad.has(item.key.replace(/:\d+$/, ""))) return "differing";
    return item.role === "input" || item.role === "output" || pairs.has(side, item.key) ? "matched" : "unmatched";
  });
  const rank: Record<State, number> = { matched: 0, unmatched: 1, differing: 2 };
  const fed = new Set(graph.edges.map(({ to }) => to));
  for (let at = graph.items.length - 1; at >= 0; at--) {
    const { parent, role } = graph.items[at];
    if (states[at] === "unmatched" && role !== "module" && !fed.has(at)) continue;
    if (parent >= 0 && rank[states[at]] > rank[states[parent]]) states[parent] = states[at];
  }
  return new Map(graph.items.map((item, at) => [item.id, states[at]]));
}

export function itemOfLabel(graph: Graph, label: string): string | undefined {
  return (graph.items.find((item) => item.key === label) ?? graph.items.find((item) => item.key.startsWith(`${label}:`)))?.id;
}
