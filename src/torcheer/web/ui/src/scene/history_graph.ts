/** The graph of a recorded run: operations inside calls of modules, or, rolled, layers inside modules. */

import type { HistoryData } from "./data";
import { foldRepeats } from "./fold";
import type { Edge, Graph, Item, Role } from "./graph";
import { heatOf, type Metric } from "./heat";
import { groupCalls } from "./roll";

export interface HistoryOptions {
  /** "aten": operations hold their ATen calls. */
  level?: "function" | "aten";
  /** Loops drawn once: layers instead of operations. */
  rolled?: boolean;
  /** Equal blocks in a row drawn once. */
  fold?: boolean;
  colourBy?: Metric | "kind";
  /** Also draw the gradients that were recorded, against the direction of the tensors. */
  gradients?: boolean;
}

/** An item in the making: what it is apart from its names, by which equal blocks are known. */
export interface Draft extends Item {
  signature: string;
  ops: number[];
}

export function historyGraph(data: HistoryData, options: HistoryOptions = {}): Graph {
  const builder = new Builder(data, options);
  const graph = builder.build();
  if (options.fold) foldRepeats(graph);
  heatOf(data, graph.items, options.colourBy ?? "kind");
  return { title: data.run.model, items: graph.items.map(finished), edges: graph.edges };
}

function finished({ id, parent, role, title, lines, out, count, heat, key, num }: Draft): Item {
  return { id, parent, role, title, lines, out, count, heat, key, num };
}

class Builder {
  private drafts: Draft[] = [];
  /** Item of each op; of each ATen call. */
  private itemOf: Int32Array;
  private atenItemOf: Int32Array;
  /** For each call the group it is drawn as: itself, or what it is rolled up with. */
  private groupOf: number[];
  private callsIn: number[];
  private numOps: number[];
  private shown: { op: number; ops: number[] }[];

  constructor(
    private data: HistoryData,
    private options: HistoryOptions,
  ) {
    const { ops, calls, layers } = data;
    this.itemOf = new Int32Array(ops.num).fill(-1);
    this.atenItemOf = new Int32Array(data.aten.num).fill(-1);
    this.shown = options.rolled
      ? layers.ops.map((passes) => ({ op: passes[0], ops: passes }))
      : ops.layer.flatMap((layer, op) => (layer < 0 ? [] : [{ op, ops: [op] }]));
    this.groupOf = options.rolled ? groupCalls(data) : calls.module.map((_, call) => call);
    this.callsIn = new Array(calls.num).fill(0);
    this.groupOf.forEach((group) => this.callsIn[group]++);
    this.numOps = new Array(calls.num).fill(0);
    for (const { op } of this.shown) for (const group of this.chain(op)) this.numOps[group]++;
  }

  build(): { items: Draft[]; edges: Edge[] } {
    const boxes = new Map<number, number>();
    for (const shown of this.shown) {
      let around = -1;
      let count = 1;
      let single = -1;
      for (const group of this.chain(shown.op)) {
        if (this.numOps[group] === 1) {
          single = group;
          continue;
        }
        if (!boxes.has(group)) {
          boxes.set(group, this.drafts.length);
          this.drafts.push(this.box(group, around, count));
        }
        around = boxes.get(group)!;
        count = this.callsIn[group];
      }
      this.itemOf[shown.op] = this.drafts.length;
      for (const op of shown.ops) this.itemOf[op] = this.drafts.length;
      this.drafts.push(this.node(shown.op, shown.ops, around, count, single));
    }
    if (this.options.level === "aten") this.addAten();
    const edges = this.options.level === "aten" ? this.atenEdges() : this.edges(this.data.edges, this.itemOf);
    if (this.options.gradients) this.addGradients(edges);
    return { items: inOrder(this.drafts, edges), edges };
  }

  /** The groups around an op, outermost first, without the model itself. */
  private chain(op: number): number[] {
    const found: number[] = [];
    const { parent } = this.data.calls;
    for (let call = this.groupOf[this.data.ops.call[op]]; parent[call] >= 0; call = this.groupOf[parent[call]])
      found.push(call);
    return found.reverse();
  }

  private box(group: number, parent: number, countAround: number): Draft {
    const { calls, modules } = this.data;
    const module = calls.module[group];
    const rolled = this.options.rolled === true;
    const several = !rolled && this.isCalledAgain(module);
    const title = several ? `${modules.address[module]}:${calls.call_index[group]}` : modules.address[module];
    return {
      id: rolled ? `module${module}.${group}` : `call${group}`,
      parent,
      role: "module",
      title,
      lines: [modules.type[module]],
      out: this.shapes(calls.outputs[group].map(([, value]) => value)),
      count: relative(this.callsIn[group], countAround),
      heat: -1,
      key: title,
      num: this.numOps[group],
      signature: `${modules.qualified_type[module]}(${modules.extra[module]})`,
      ops: [],
    };
  }

  private node(op: number, passes: number[], parent: number, countAround: number, single: number): Draft {
    const { ops, layers, modules, calls, functions } = this.data;
    const rolled = this.options.rolled === true;
    const label = rolled ? layers.label[ops.layer[op]] : ops.label[op];
    const lines: string[] = [];
    let kind = functions.function[ops.function[op]];
    if (single >= 0) {
      const module = calls.module[single];
      const again = !rolled && this.isCalledAgain(module);
      const address = again ? `${modules.address[module]}:${calls.call_index[single]}` : modules.address[module];
      lines.push(`${address} · ${modules.type[module]}`);
      kind += ` ${modules.qualified_type[module]}(${modules.extra[module]})`;
    }
    const params = this.paramLine(op);
    if (params) lines.push(params);
    const out = this.shapes(ops.outputs[op]);
    return {
      id: rolled ? `layer${ops.layer[op]}` : `op${op}`,
      parent,
      role: this.roleOf(op),
      title: label,
      lines,
      out,
      count: relative(passes.length, countAround),
      heat: -1,
      key: label,
      num: 1,
      signature: `${kind} ${params} ${out}`,
      ops: passes,
    };
  }

  private isCalledAgain(module: number): boolean {
    this.called ??= countBy(this.data.calls.module);
    return (this.called.get(module) ?? 0) > 1;
  }
  private called?: Map<number, number>;

  private roleOf(op: number): Role {
    const { ops, params } = this.data;
    if (ops.kind[op] !== "op") return ops.kind[op] as Role;
    if (ops.params[op].some((param) => params.kind[param] === "param")) return "params";
    if (ops.params[op].length) return "buffer";
    this.fed ??= new Set(this.data.edges.to);
    return this.fed.has(op) ? "op" : "constant";
  }
  private fed?: Set<number>;

  private paramLine(op: number): string {
    const { ops, params } = this.data;
    const trained = ops.params[op].filter((param) => params.kind[param] === "param");
    const shown = trained.length ? trained : ops.params[op];
    if (!shown.length) return "";
    const shapes = shown.slice(0, 3).map((param) => shapeText(params.shape[param]));
    if (shown.length > 3) shapes.push(`+${shown.length - 3}`);
    return `${trained.length ? "params" : "buffers"} ${shapes.join(", ")}`;
  }

  /** "1×64×55×55", "2×1 | 2×2", "1×128×768 (3)". */
  private shapes(values: number[]): string {
    if (values.length === 1) return this.shape(values[0]);
    const texts = values.map((value) => this.shape(value));
    const distinct = [...new Set(texts)];
    if (distinct.length === 1) return texts.length > 1 ? `${texts.length} of ${distinct[0]}` : distinct[0];
    return distinct.slice(0, 3).join(" | ") + (distinct.length > 3 ? " …" : "");
  }

  private shape(value: number): string {
    const { types, values } = this.data;
    const type = values.type[value];
    return (this.typeTexts[type] ??= shapeText(types.shape[type]));
  }
  private typeTexts: (string | undefined)[] = [];

  private edges(table: HistoryData["edges"], itemOf: Int32Array): Edge[] {
    const found: Edge[] = [];
    const count = this.drafts.length;
    const first = new Map<number, number>();
    const further = new Set<string>(); // texts are slow to make, and seldom is there more than one tensor between two
    for (let row = 0; row < table.num; row++) {
      const [from, to] = [itemOf[table.from[row]], itemOf[table.to[row]]];
      if (from < 0 || to < 0) continue;
      const key = (from * count + to) * 2 + (table.memory[row] ? 1 : 0);
      const value = this.options.rolled ? 0 : table.value[row];
      const known = first.get(key);
      if (known === undefined) first.set(key, value);
      else if (known === value || further.has(`${key} ${value}`)) continue;
      else further.add(`${key} ${value}`);
      const kind = table.memory[row] ? "memory" : "tensor";
      found.push({ from, to, label: this.shape(table.value[row]), kind, value: table.value[row] });
    }
    return found;
  }

  /** Operations become boxes around the ATen calls of their forward pass. */
  private addAten(): void {
    const { aten, functions } = this.data;
    for (let call = 0; call < aten.num; call++) {
      const owner = aten.owner[call];
      const parent = owner < 0 ? -1 : this.itemOf[owner];
      if (aten.phase[call] !== "forward" || parent < 0) continue;
      // Rolled, only the first pass of a layer is shown, with its own ATen calls.
      if (this.drafts[parent].ops[0] !== owner) continue;
      this.atenItemOf[call] = this.drafts.length;
      const out = this.shapes(aten.outputs[call]);
      const name = functions.function[aten.function[call]];
      this.drafts.push({
        id: `aten${call}`, parent, role: "aten", title: name.replace(/^aten\./, ""), lines: [], out,
        count: 1, heat: -1, key: this.drafts[parent].key, num: 1, signature: `${name} ${out}`, ops: [],
      });
    }
  }

  private atenEdges(): Edge[] {
    const first = new Map<number, number>();
    const last = new Map<number, number>();
    this.drafts.forEach((draft, item) => {
      if (draft.role !== "aten") return;
      if (!first.has(draft.parent)) first.set(draft.parent, item);
      last.set(draft.parent, item);
    });
    const edges = this.edges(this.data.aten_edges, this.atenItemOf);
    const linked = new Set(edges.map((edge) => `${this.drafts[edge.from].parent} ${this.drafts[edge.to].parent}`));
    // What the ATen level does not link (inputs, outputs, views made without a call) the function level does.
    for (const edge of this.edges(this.data.edges, this.itemOf)) {
      if (linked.has(`${edge.from} ${edge.to}`)) continue;
      edges.push({ ...edge, from: last.get(edge.from) ?? edge.from, to: first.get(edge.to) ?? edge.to });
    }
    return edges;
  }

  private addGradients(edges: Edge[]): void {
    const reached = new Set(this.data.gradients.value);
    const { edges: table } = this.data;
    // Rolled, an edge stands for the tensors of all passes; the first pass may have had no gradient.
    const links = new Set<string>();
    for (let row = 0; row < table.num; row++)
      if (reached.has(table.value[row])) links.add(`${this.itemOf[table.from[row]]} ${this.itemOf[table.to[row]]}`);
    const opOf = (item: number) => (this.drafts[item].role === "aten" ? this.drafts[item].parent : item);
    for (const edge of [...edges])
      if (edge.kind === "tensor" && links.delete(`${opOf(edge.from)} ${opOf(edge.to)}`))
        edges.push({ ...edge, from: edge.to, to: edge.from, kind: "gradient" });
  }
}

/** Put items so that whatever is inside one follows it directly, and number edges anew. */
function inOrder(drafts: Draft[], edges: Edge[]): Draft[] {
  const children = new Map<number, number[]>([[-1, []]]);
  drafts.forEach((draft, item) => {
    const siblings = children.get(draft.parent);
    if (siblings) siblings.push(item);
    else children.set(draft.parent, [item]);
  });
  const order: number[] = [];
  const stack = children.get(-1)!.slice().reverse();
  while (stack.length) {
    const item = stack.pop()!;
    order.push(item);
    const inside = children.get(item) ?? [];
    for (let at = inside.length - 1; at >= 0; at--) stack.push(inside[at]);
  }
  const now = new Int32Array(drafts.length);
  order.forEach((item, at) => (now[item] = at));
  for (const edge of edges) [edge.from, edge.to] = [now[edge.from], now[edge.to]];
  return order.map((item) => {
    const draft = drafts[item];
    if (draft.parent >= 0) draft.parent = now[draft.parent];
    return draft;
  });
}

function countBy(keys: number[]): Map<number, number> {
  const counts = new Map<number, number>();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
}

/** How often per time around it, where that is a whole number. */
const relative = (count: number, around: number) => (count % around === 0 ? count / around : count);

export function shapeText(shape: number[]): string {
  return shape.length ? shape.map((size) => (size < 0 ? "?" : size)).join("×") : "scalar";
}
