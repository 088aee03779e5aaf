/** What is laid out and drawn: a tree of items, and edges between its leaves. Whoever wants a picture builds one. */

/** What an item is; it decides the colour. The last three are a comparison's. */
export type Role =
  | "input"
  | "output"
  | "op"
  | "params"
  | "buffer"
  | "constant"
  | "module"
  | "aten"
  | "missing"
  | "added"
  | "changed";

/** A tensor passed on; one read from memory that another op wrote; a gradient flowing back. */
export const EDGE_KINDS: readonly EdgeKind[] = ["tensor", "memory", "gradient"];

export type EdgeKind = "tensor" | "memory" | "gradient";

export interface Item {
  /** Stable name: "op12", "call3", "layer4", "module2", "aten7". */
  id: string;
  /** The item around it: an index into `Graph.items`, -1 at the top. Parents come before their children. */
  parent: number;
  role: Role;
  title: string;
  /** Further lines under the title. */
  lines: string[];
  /** What it gives, drawn where its edges begin: "1×64×55×55". */
  out: string;
  /** ×N: passes of a loop, equal blocks in a row. */
  count: number;
  /** 0 … 1 where items are coloured by a metric, -1 where not. */
  heat: number;
  /** What `history[key]` takes. */
  key: string;
  /** How many ops it stands for. */
  num: number;
}

export interface Edge {
  /** Leaves: indices into `Graph.items`. */
  from: number;
  to: number;
  label: string;
  kind: EdgeKind;
  /** The tensor: an index into the data's values, -1 where there is none. */
  value: number;
}

export interface Graph {
  title: string;
  items: Item[];
  edges: Edge[];
}
