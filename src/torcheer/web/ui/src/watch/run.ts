// A watched run as `views/watch.py` writes it, and the graph of its modules.

import type { Edge, Graph, Item } from "../scene/graph";

export interface Tensor {
  path: string;
  shape: number[];
  dtype: string;
}

export interface Structure {
  version: number;
  model: string;
  step: number;
  modules: { address: string; type: string; parent: string | null; extra: string | [string, string][] }[];
  calls: { id: number; module: string; call: number; parent: number | null; inputs: Tensor[]; outputs: Tensor[]; first_step?: number }[];
  edges: { parent: number; from: number | string; to: number | string }[];
  record: string | null;
  seen?: string;
}

export interface SeriesFacts {
  id: number;
  lane: string;
  model: string;
  module: string;
  call: number;
  kind: string;
  path: string;
  shape: number[];
  dtype: string;
  name: string;
}

export interface Alert {
  seq: number;
  step: number;
  rule: string;
  series: number | null;
  message: string;
}

export interface Note {
  seq: number;
  step: number;
  code: string;
  message: string;
}

export interface Overview {
  title: string;
  is_live: boolean;
  lanes: string[];
  last_step: number | null;
  structures: Structure[];
  series: SeriesFacts[];
  scalar_names: string[];
  alerts: Alert[];
  notes: Note[];
  cursor: string;
  sessions: { session: number; started: number; first_step: number }[];
  /** In one file only. */
  rows?: Record<string, Rows>;
  scalars?: Record<string, Scalars>;
}

export interface Rows {
  series: number;
  steps: number[];
  last_steps: number[];
  stats: Record<string, (number | null)[]>;
  counts: number[][];
}

export interface Scalars {
  steps: number[];
  values: (number | string | null)[];
}

export interface Changes {
  cursor: string;
  last_step: number | null;
  is_live: boolean;
  steps: Record<string, number>;
  series: boolean;
  structure: boolean;
  scalars: boolean;
  alerts: Alert[];
  notes: Note[];
}

/** New rows in place of those of the same steps. */
export function withRows(old: Rows | undefined, added: Rows): Rows {
  if (!old || !added.steps.length) return old ?? added;
  const since = added.steps[0];
  let keep = old.steps.length;
  while (keep > 0 && old.last_steps[keep - 1] >= since) keep--;
  const join = <T>(a: T[], b: T[]) => [...a.slice(0, keep), ...b];
  const stats = Object.fromEntries(Object.entries(added.stats).map(([name, column]) => [name, join(old.stats[name], column)]));
  return {
    series: old.series,
    steps: join(old.steps, added.steps),
    last_steps: join(old.last_steps, added.last_steps),
    stats,
    counts: join(old.counts, added.counts),
  };
}

export function withScalars(old: Scalars | undefined, added: Scalars): Scalars {
  if (!old || !added.steps.length) return old ?? added;
  let keep = old.steps.length;
  while (keep > 0 && old.steps[keep - 1] >= added.steps[0]) keep--;
  return { steps: [...old.steps.slice(0, keep), ...added.steps], values: [...old.values.slice(0, keep), ...added.values] };
}

/** What TorchExplorer says of a module under the mouse: shapes that went in and came out, then its settings, a line for each. */
export function tipOf(structure: Structure, id: string): string[] {
  const at = id.lastIndexOf(":");
  const [address, number] = [id.slice(0, at), Number(id.slice(at + 1))];
  const call = structure.calls.find((one) => one.module === address && one.call === number);
  const module = structure.modules.find((one) => one.address === address);
  if (!call) return [];
  const shapes = (name: string, tensors: Tensor[]) => tensors.map(({ path, shape }) => `${name}${path && ` ${path}`}: ${shape.join("×") || "scalar"}`);
  const { extra } = module ?? {};
  const settings = Array.isArray(extra) ? extra.map(([key, value]) => (key ? `${key}: ${value}` : `- ${value}`)) : (extra ?? "").split(", ").filter(Boolean);
  return [module?.type ?? "", ...shapes("input", call.inputs), ...shapes("output", call.outputs), ...settings].filter(Boolean);
}

/** Calls of modules, nested as they ran. An edge into a module goes to what takes it inside. */
export function runGraph(structure: Structure): Graph {
  const items: Item[] = [];
  const place = new Map<number, number>();
  const type = new Map(structure.modules.map((module) => [module.address, module]));
  const times = new Map<string, number>();
  for (const { module } of structure.calls) times.set(module, (times.get(module) ?? 0) + 1);
  const isRoot = (call: Structure["calls"][number]) => call.parent === null;
  const children = new Map<number | null, Structure["calls"]>();
  for (const call of structure.calls) {
    const siblings = children.get(call.parent);
    if (siblings) siblings.push(call);
    else children.set(call.parent, [call]);
  }
  const root = structure.calls.find(isRoot);
  const add = (call: Structure["calls"][number], parent: number) => {
    const module = type.get(call.module);
    const extra = Array.isArray(module?.extra) ? module.extra.map((pair) => pair.filter(Boolean).join("=")).join(", ") : (module?.extra ?? "");
    place.set(call.id, items.length);
    const again = (times.get(call.module) ?? 0) > 1 ? `:${call.call}` : "";
    items.push({
      ...EMPTY,
      id: `${call.module}:${call.call}`,
      parent,
      role: "module",
      title: (call.module.split(".").slice(parent < 0 ? 0 : -1).join(".") || call.module) + again,
      lines: [module?.type ?? "", ...(extra && extra.length < 60 ? [extra] : [])],
      out: call.outputs.map(({ shape }) => shape.join("×")).join(" | "),
      key: call.module,
    });
    const here = items.length - 1;
    for (const inner of children.get(call.id) ?? []) add(inner, here);
  };
  const ports = new Map<string, number>();
  const addPorts = (role: "input" | "output") => {
    for (const [index, { path, shape }] of (root?.[role === "input" ? "inputs" : "outputs"] ?? []).entries()) {
      const id = `${role}:${path}`;
      ports.set(`${role}:${index}`, items.length); // edges name it by its place
      items.push({ ...EMPTY, id, role, title: `${role} ${path}`.trim(), out: role === "input" ? shape.join("×") : "" });
    }
  };
  // In the order of execution, since the layout takes an edge to something earlier for a loop.
  if (structure.edges.length) addPorts("input");
  const inside = root ? (children.get(root.id) ?? []) : (children.get(null) ?? []);
  for (const call of inside.length || !root ? inside : [root]) add(call, -1);
  if (structure.edges.length) addPorts("output");
  return { title: root?.module ?? "", items, edges: edgesOf(structure, items, place, ports, root?.id) };
}

const EMPTY: Item = { id: "", parent: -1, role: "module", title: "", lines: [], out: "", count: 1, heat: -1, key: "", num: 1 };

function edgesOf(structure: Structure, items: Item[], place: Map<number, number>, ports: Map<string, number>, root: number | undefined): Edge[] {
  const edges: Edge[] = [];
  const known = new Set<string>();
  const within = new Map<number, Structure["edges"]>();
  for (const edge of structure.edges) {
    const siblings = within.get(edge.parent);
    if (siblings) siblings.push(edge);
    else within.set(edge.parent, [edge]);
  }
  const hasInside = new Set(items.map((item) => item.parent));
  /** The calls without calls inside that an end of an edge leads to. */
  const leaves = (end: number | string, way: "from" | "to", parent: number): number[] => {
    if (typeof end === "string") {
      const port = parent === root ? ports.get(end) : undefined;
      return port === undefined ? [] : [port];
    }
    const inner = within.get(end) ?? [];
    const other = way === "from" ? "to" : "from";
    const word = way === "from" ? "output" : "input";
    const through = inner.filter((edge) => String(edge[other]).startsWith(word)).flatMap((edge) => leaves(edge[way], way, end));
    const own = place.get(end);
    if (through.length) return [...new Set(through)];
    return own === undefined || hasInside.has(own) ? [] : [own];
  };
  for (const edge of structure.edges) {
    for (const from of leaves(edge.from, "from", edge.parent)) {
      for (const to of leaves(edge.to, "to", edge.parent)) {
        if (from === to || known.has(`${from} ${to}`)) continue;
        known.add(`${from} ${to}`);
        edges.push({ from, to, label: "", kind: "tensor", value: -1 });
      }
    }
  }
  return edges;
}
