// What there is to say about an item of a run's graph: from the tables to lines and lists that a panel shows.

import type { History } from "../data/history";
import { bytesText, countText, numberText, shapeText, timeText } from "../data/text";

export interface Fact {
  name: string;
  text: string;
}

export interface Relative {
  /** Ids of items that could stand for it, the best first. */
  ids: string[];
  name: string;
  note: string;
}

export interface Facts {
  title: string;
  kind: string;
  /** What history[key] takes. */
  key: string;
  lines: Fact[];
  tensors: { name: string; value: number; text: string }[];
  params: { name: string; text: string }[];
  parents: Relative[];
  children: Relative[];
  inside: Relative[];
  /** Calls, outermost first. Own: not of an installed package. */
  source: { place: string; line: string; function: string; isOwn: boolean }[];
}

export function factsOf(history: History, id: string): Facts | null {
  const kind = id.replace(/\d+$/, "");
  const index = Number(id.slice(kind.length));
  if (kind === "op") return opFacts(history, index);
  if (kind === "layer") return layerFacts(history, index);
  if (kind === "call") return callFacts(history, index);
  if (kind === "module") return moduleFacts(history, index);
  if (kind === "aten") return atenFacts(history, index);
  return null;
}

const NONE: Omit<Facts, "title" | "kind" | "key"> = { lines: [], tensors: [], params: [], parents: [], children: [], inside: [], source: [] };

export function tensorText(history: History, value: number): string {
  const { values, types } = history;
  const type = values.type[value];
  const parts = [shapeText(types.shape[type]), types.dtype[type], bytesText(values.size_bytes[value])];
  if (types.device[type] !== "cpu") parts.push(types.device[type]);
  return parts.join(" · ");
}

function opFacts(history: History, op: number): Facts {
  const { ops, functions, calls, modules, params, edges } = history;
  const lines: Fact[] = [{ name: "Function", text: functions.function[ops.function[op]] }];
  const address = modules.address[calls.module[ops.call[op]]];
  if (address) lines.push({ name: "Module", text: `${address} (${modules.type[calls.module[ops.call[op]]]})` });
  if (ops.arguments[op]) lines.push({ name: "Arguments", text: ops.arguments[op] });
  if (ops.time_ns[op] != null) lines.push({ name: "Time", text: timeText(ops.time_ns[op]) });
  if (ops.backward_time_ns[op] != null) lines.push({ name: "Backward", text: timeText(ops.backward_time_ns[op]) });
  if (ops.pass[op] > 1 || passesOf(history, op) > 1) lines.push({ name: "Pass", text: `${ops.pass[op]} of ${passesOf(history, op)}` });
  if (ops.writes[op]) lines.push({ name: "In place", text: "writes into its input" });
  const gradFunction = history.values.grad_function[ops.outputs[op][0]];
  if (gradFunction) lines.push({ name: "Autograd", text: gradFunction });
  const parents: Relative[] = [];
  const children: Relative[] = [];
  for (let edge = 0; edge < edges.num; edge++) {
    if (edges.to[edge] === op) parents.push(relative(history, edges.from[edge], edgeNote(history, edge)));
    if (edges.from[edge] === op) children.push(relative(history, edges.to[edge], edgeNote(history, edge)));
  }
  return {
    ...NONE,
    title: ops.label[op],
    kind: ops.kind[op] === "op" ? functions.name[ops.function[op]] : ops.kind[op],
    key: ops.label[op],
    lines,
    tensors: ops.outputs[op].map((value, at) => ({
      name: ops.outputs[op].length > 1 ? `Output ${at}` : "Output",
      value,
      text: tensorText(history, value),
    })),
    params: ops.params[op].map((param) => paramText(history, param)),
    parents,
    children,
    inside: atenOf(history, op),
    source: stackOf(history, ops.call[op], ops.site[op]),
  };

  function paramText(_: History, param: number) {
    return { name: params.address[param], text: `${shapeText(params.shape[param])} · ${params.kind[param]}` };
  }
}

function passesOf(history: History, op: number): number {
  const layer = history.ops.layer[op];
  return layer < 0 ? 1 : history.layers.ops[layer].length;
}

function relative(history: History, op: number, note: string): Relative {
  return { ids: [`op${op}`, `layer${history.ops.layer[op]}`], name: history.ops.label[op], note };
}

function edgeNote(history: History, edge: number): string {
  const { edges, types, values } = history;
  const shape = shapeText(types.shape[values.type[edges.value[edge]]]);
  return edges.memory[edge] ? `${shape} · through memory` : edges.argument[edge] ? `${shape} · argument ${edges.argument[edge]}` : shape;
}

function atenOf(history: History, op: number): Relative[] {
  const { aten, functions } = history;
  const found: Relative[] = [];
  for (let at = 0; at < aten.num; at++) {
    if (aten.owner[at] !== op) continue;
    const time = aten.time_ns[at] == null ? "" : timeText(aten.time_ns[at]);
    const phase = aten.phase[at] === "forward" ? "" : aten.phase[at];
    found.push({ ids: [`aten${at}`], name: functions.function[aten.function[at]], note: [phase, time].filter(Boolean).join(" · ") });
  }
  return found;
}

function layerFacts(history: History, layer: number): Facts {
  const { layers, ops } = history;
  const passes = layers.ops[layer];
  const facts = opFacts(history, passes[0]);
  if (passes.length === 1) return facts;
  const times = passes.map((op) => ops.time_ns[op] ?? 0);
  const lines = [
    { name: "Passes", text: countText(passes.length) },
    { name: "Time", text: `${timeText(times.reduce((a, b) => a + b, 0))} in all` },
    ...facts.lines.filter(({ name }) => name !== "Pass" && name !== "Time"),
  ];
  const inside = passes.map((op) => relative(history, op, timeText(ops.time_ns[op])));
  return { ...facts, title: layers.label[layer], key: layers.label[layer], lines, inside };
}

function callFacts(history: History, call: number): Facts {
  const { calls, modules } = history;
  const facts = moduleFacts(history, calls.module[call]);
  const several = calls.module.filter((module) => module === calls.module[call]).length;
  if (several > 1) facts.lines.push({ name: "Call", text: `${calls.call_index[call]} of ${several}` });
  facts.lines.push({ name: "Operations", text: countText(calls.end_op[call] - calls.first_op[call]) });
  if (calls.time_ns[call] != null) facts.lines.push({ name: "Time", text: timeText(calls.time_ns[call]) });
  if (calls.error[call]) facts.lines.push({ name: "Raised", text: calls.error[call]! });
  const tensors = (["inputs", "outputs"] as const).flatMap((side) =>
    calls[side][call].map(([path, value]) => ({
      name: `${side === "inputs" ? "Input" : "Output"} ${path}`.trim(),
      value,
      text: tensorText(history, value),
    })),
  );
  const inside: Relative[] = [];
  for (let inner = 0; inner < calls.num; inner++) {
    if (calls.parent[inner] !== call) continue;
    const address = modules.address[calls.module[inner]];
    inside.push({ ids: [`call${inner}`, `op${calls.first_op[inner]}`], name: address, note: modules.type[calls.module[inner]] });
  }
  return { ...facts, tensors, inside, source: stackOf(history, calls.parent[call], calls.site[call]) };
}

function moduleFacts(history: History, module: number): Facts {
  const { modules, params, calls } = history;
  const under = underneath(history, module);
  const total = [...under].flatMap((inner) => modules.params[inner]);
  const unique = [...new Set(total)].filter((param) => params.kind[param] === "param");
  const lines: Fact[] = [{ name: "Type", text: modules.qualified_type[module] }];
  // Its settings as `extra_repr` has them: "64, 192, kernel_size=(5, 5)" → one line each.
  for (const part of modules.extra[module].split(/,\s*(?![^(]*\))/).filter(Boolean)) {
    const [name, ...rest] = part.split("=");
    lines.push(rest.length ? { name, text: rest.join("=") } : { name: "—", text: part });
  }
  lines.push({ name: "Params", text: countText(unique.reduce((sum, param) => sum + (params.num_elements[param] ?? 0), 0)) });
  lines.push({ name: "Mode", text: modules.training[module] ? "training" : "evaluation" });
  if (modules.aliases[module].length) lines.push({ name: "Also", text: modules.aliases[module].join(", ") });
  const used = calls.module.filter((other) => other === module).length;
  if (used !== 1) lines.push({ name: "Calls", text: used ? countText(used) : "never called" });
  return {
    ...NONE,
    title: modules.address[module] || history.run.model,
    kind: modules.type[module],
    key: modules.address[module],
    lines,
    params: modules.params[module].map((param) => ({
      name: params.address[param],
      text: `${shapeText(params.shape[param])} · ${params.dtype[param]}${params.requires_grad[param] ? "" : " · frozen"}`,
    })),
  };
}

function underneath(history: History, module: number): Set<number> {
  const found = new Set([module]);
  history.modules.parent.forEach((parent, index) => found.has(parent) && found.add(index));
  return found;
}

function atenFacts(history: History, at: number): Facts {
  const { aten, functions, ops, aten_edges } = history;
  const lines: Fact[] = [{ name: "Phase", text: aten.phase[at] }];
  if (aten.owner[at] >= 0) lines.push({ name: "Inside", text: ops.label[aten.owner[at]] });
  if (aten.node[at]) lines.push({ name: "Node", text: aten.node[at] });
  if (aten.time_ns[at] != null) lines.push({ name: "Time", text: timeText(aten.time_ns[at]) });
  const name = (other: number) => functions.function[aten.function[other]];
  const parents: Relative[] = [];
  const children: Relative[] = [];
  for (let edge = 0; edge < aten_edges.num; edge++) {
    const { from, to } = { from: aten_edges.from[edge], to: aten_edges.to[edge] };
    if (to === at) parents.push({ ids: [`aten${from}`], name: name(from), note: "" });
    if (from === at) children.push({ ids: [`aten${to}`], name: name(to), note: "" });
  }
  return {
    ...NONE,
    title: name(at),
    kind: "ATen call",
    key: aten.owner[at] >= 0 ? ops.label[aten.owner[at]] : "",
    lines,
    tensors: aten.outputs[at].map((value, place) => ({ name: `Output ${place}`, value, text: tensorText(history, value) })),
    parents,
    children,
  };
}

const INSTALLED = /^.*[\\/](?:site|dist)-packages[\\/]/;

/** Where packages are installed says nothing: "torch/nn/modules/conv.py". */
const shortPath = (file: string) => file.replace(INSTALLED, "");

/** The way from the model's forward down to a call, outermost first. */
function stackOf(history: History, call: number, site: number): Facts["source"] {
  const { calls, sites, frames } = history;
  const found: number[][] = site >= 0 ? [sites.frames[site]] : [];
  for (let at = call; at >= 0; at = calls.parent[at]) {
    const outer = calls.site[at];
    if (outer >= 0) found.unshift(sites.frames[outer]);
  }
  return found.flat().map((frame) => ({
    place: `${shortPath(frames.file[frame])}:${frames.line[frame]}`,
    isOwn: !INSTALLED.test(frames.file[frame]),
    line: frames.text[frame],
    function: frames.function[frame],
  }));
}

export function statisticsOf(history: History, value: number): Record<string, unknown> | null {
  const { statistics } = history;
  const row = statistics.num ? (statistics.value as number[]).indexOf(value) : -1;
  if (row < 0) return null;
  return Object.fromEntries(Object.entries(statistics).flatMap(([name, column]) => (Array.isArray(column) ? [[name, column[row]]] : [])));
}

export const STATISTIC_LINES: readonly (readonly [string, string, (value: never) => string])[] = [
  ["mean", "Mean", numberText],
  ["std", "Std", numberText],
  ["min", "Min", numberText],
  ["max", "Max", numberText],
  ["num_elements", "Elements", countText],
  ["num_zero", "Zeros", countText],
  ["num_nan", "NaN", countText],
  ["num_inf", "Inf", countText],
];
