/** What is to be seen of a graph when some of its items are open, and which seen things its edges link. */

import { EDGE_KINDS, type EdgeKind, type Graph } from "../scene/graph";

/** All edges of a kind between two seen items. */
export interface Link {
  from: number;
  to: number;
  kind: EdgeKind;
  /** The innermost item around both ends, -1 at the top. */
  common: number;
  edges: number[];
}

export interface Tree {
  parent: number[];
  /** Seen items, parents before children. */
  visible: number[];
  /** Seen items that are open, parents before children. */
  open: number[];
  /** Seen children of open items, and of the top (-1), in order. */
  children: Map<number, number[]>;
  /** Place of each seen item among its siblings. */
  place: number[];
  isOpen: boolean[];
  hasInside: boolean[];
  /** Whether an edge leaves the seen item. */
  hasOut: boolean[];
  links: Link[];
}

export function buildTree(graph: Graph, isOpen: (item: number) => boolean): Tree {
  const { items } = graph;
  const parent = items.map((item) => item.parent);
  const hasInside = new Array<boolean>(items.length).fill(false);
  for (const around of parent) if (around >= 0) hasInside[around] = true;
  const opened = items.map((_, item) => hasInside[item] && isOpen(item));
  const seenAs = new Int32Array(items.length);
  const depth = new Int32Array(items.length);
  const children = new Map<number, number[]>([[-1, []]]);
  const place: number[] = new Array(items.length).fill(-1);
  const visible: number[] = [];
  const open: number[] = [];
  items.forEach((_, item) => {
    const around = parent[item];
    const isSeen = around < 0 || (seenAs[around] === around && opened[around]);
    seenAs[item] = isSeen ? item : seenAs[around];
    if (!isSeen) return;
    depth[item] = around < 0 ? 0 : depth[around] + 1;
    visible.push(item);
    const siblings = children.get(around)!;
    place[item] = siblings.length;
    siblings.push(item);
    if (opened[item]) {
      open.push(item);
      children.set(item, []);
    }
  });
  const links = linkUp(graph, seenAs, depth, parent);
  const hasOut = new Array<boolean>(items.length).fill(false);
  for (const link of links) if (link.kind !== "gradient") hasOut[link.from] = true;
  return { parent, visible, open, children, place, isOpen: opened, hasInside, hasOut, links };
}

function linkUp(graph: Graph, seenAs: Int32Array, depth: Int32Array, parent: number[]): Link[] {
  const links = new Map<number, Link>(); // numbers as keys: texts would cost more than all the rest
  graph.edges.forEach((edge, index) => {
    const from = seenAs[edge.from];
    const to = seenAs[edge.to];
    // What happens inside a closed box is not seen; an op that feeds itself is.
    if (from === to && (from !== edge.from || from !== edge.to)) return;
    const key = (from * parent.length + to) * EDGE_KINDS.length + EDGE_KINDS.indexOf(edge.kind);
    const known = links.get(key);
    if (known) {
      known.edges.push(index);
      return;
    }
    let [a, b] = from === to ? [parent[from], parent[from]] : [from, to];
    while (a !== b) {
      if (a >= 0 && (b < 0 || depth[a] >= depth[b])) a = parent[a];
      else b = parent[b];
    }
    links.set(key, { from, to, kind: edge.kind, common: a, edges: [index] });
  });
  return [...links.values()];
}
