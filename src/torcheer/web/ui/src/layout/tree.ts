/** What is to be seen of a graph when some of its items are open, and which seen things its edges link. It is kept from
 * one layout to the next, so that opening one box of ten thousand costs what changes by it. */

import { EDGE_KINDS, type EdgeKind, type Graph } from "../scene/graph";

/** All edges of a kind between two seen items. */
export interface Link {
  from: number;
  to: number;
  kind: EdgeKind;
  /** The innermost item around both ends, -1 at the top. */
  common: number;
  /** In rising order. */
  edges: number[];
}

export class Tree {
  readonly parent: Int32Array;
  /** Items inside each, in order. */
  readonly children: readonly number[][];
  /** Items around which there is nothing. */
  readonly top: readonly number[] = [];
  /** Place of each item among its siblings. */
  readonly place: Int32Array;
  /** All items, each followed by what is inside. */
  readonly order: Int32Array;
  /** The innermost seen item that each is, or is in; -1 before the first update. */
  readonly seenAs: Int32Array;
  /** 1 for items that are seen and open. */
  readonly isOpen: Uint8Array;
  /** The link of each edge; none for one that is not seen. */
  readonly links: (Link | undefined)[];
  /** How many links leave each seen item, gradients apart. */
  private readonly numOut: Int32Array;
  private readonly depth: Int32Array;
  private readonly known = new Map<number, Link>(); // numbers as keys: texts would cost more than all the rest

  constructor(private readonly graph: Graph) {
    const { items, edges } = graph;
    const count = items.length;
    const top: number[] = [];
    const children: number[][] = Array.from({ length: count }, () => NONE);
    this.parent = new Int32Array(count);
    this.place = new Int32Array(count);
    this.depth = new Int32Array(count);
    for (let item = 0; item < count; item++) {
      const around = (this.parent[item] = items[item].parent);
      if (around >= 0 && children[around] === NONE) children[around] = [];
      const siblings = around < 0 ? top : children[around];
      this.place[item] = siblings.length;
      siblings.push(item);
      this.depth[item] = around < 0 ? 0 : this.depth[around] + 1;
    }
    this.top = top;
    this.children = children;
    this.order = inOrder(top, children);
    this.seenAs = new Int32Array(count).fill(-1);
    this.isOpen = new Uint8Array(count);
    this.numOut = new Int32Array(count);
    this.links = new Array<Link | undefined>(edges.length).fill(undefined);
  }

  hasOut(item: number): boolean {
    return this.numOut[item] > 0;
  }

  isSeen(item: number): boolean {
    return this.seenAs[item] === item;
  }

  /** Take another choice of open items. `touch` is told of every box in which something is other than before: -1 is the top. */
  update(isOpen: (item: number) => boolean, touch: (box: number) => void): void {
    const moved = this.look(isOpen, touch);
    const { edges } = this.graph;
    const changed = new Set<Link>();
    for (let edge = 0; edge < edges.length; edge++) {
      const { from, to } = edges[edge];
      if (!moved[from] && !moved[to]) continue;
      const before = this.links[edge];
      if (before) changed.add(before);
      const now = this.linkOf(edge);
      this.links[edge] = now;
      if (!now) continue;
      now.edges.push(edge);
      changed.add(now);
    }
    for (const link of changed) this.settle(link, touch);
  }

  /** See again what is seen and open; returns 1 for items that are seen as another than before. */
  private look(isOpen: (item: number) => boolean, touch: (box: number) => void): Uint8Array {
    const count = this.parent.length;
    const moved = new Uint8Array(count);
    for (let item = 0; item < count; item++) {
      const around = this.parent[item];
      const isSeen = around < 0 || this.isOpen[around] === 1;
      const seenAs = isSeen ? item : this.seenAs[around];
      const open = Number(isSeen && this.children[item] !== NONE && isOpen(item));
      if (seenAs !== this.seenAs[item]) moved[item] = 1;
      this.seenAs[item] = seenAs;
      if (open === this.isOpen[item]) continue;
      this.isOpen[item] = open;
      touch(item);
      touch(around);
    }
    return moved;
  }

  private linkOf(edge: number): Link | undefined {
    const whole = this.graph.edges[edge];
    const from = this.seenAs[whole.from];
    const to = this.seenAs[whole.to];
    // What happens inside a closed box is not seen; an op that feeds itself is.
    if (from === to && (from !== whole.from || from !== whole.to)) return undefined;
    const { kind } = whole;
    const key = this.key(from, to, kind);
    let link = this.known.get(key);
    if (!link) {
      this.known.set(key, (link = { from, to, kind, common: this.around(from, to), edges: [] }));
      if (kind !== "gradient") this.numOut[from]++;
    }
    return link;
  }

  /** Keep of a link's edges those it has now; all that it leads through is touched. */
  private settle(link: Link, touch: (box: number) => void): void {
    link.edges = link.edges.filter((edge) => this.links[edge] === link).sort((a, b) => a - b);
    if (!link.edges.length) {
      this.known.delete(this.key(link.from, link.to, link.kind));
      if (link.kind !== "gradient") this.numOut[link.from]--;
    }
    for (let box = this.parent[link.from]; box !== link.common; box = this.parent[box]) touch(box);
    for (let box = this.parent[link.to]; box !== link.common; box = this.parent[box]) touch(box);
    touch(link.common);
  }

  private key(from: number, to: number, kind: EdgeKind): number {
    return (from * this.parent.length + to) * EDGE_KINDS.length + EDGE_KINDS.indexOf(kind);
  }

  private around(from: number, to: number): number {
    let [a, b] = from === to ? [this.parent[from], this.parent[from]] : [from, to];
    while (a !== b) {
      if (a >= 0 && (b < 0 || this.depth[a] >= this.depth[b])) a = this.parent[a];
      else b = this.parent[b];
    }
    return a;
  }
}

const NONE: number[] = [];

function inOrder(top: readonly number[], children: readonly number[][]): Int32Array {
  const order = new Int32Array(children.length);
  const waiting = top.slice().reverse();
  for (let at = 0; waiting.length; at++) {
    const item = waiting.pop()!;
    order[at] = item;
    for (let child = children[item].length - 1; child >= 0; child--) waiting.push(children[item][child]);
  }
  return order;
}
