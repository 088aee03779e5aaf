// A scene as arrays of numbers: crosses from the worker to the page in no time, where 10,000 objects would take as long as
// their layout. Texts do not cross: they follow from the items, and only those that are drawn are ever made.

import { EDGE_KINDS, type EdgeKind, type Graph } from "../scene/graph";
import { measure } from "../scene/measure";
import type { Box, Route, Scene, Text } from "../scene/scene";

export interface Packed {
  width: number;
  height: number;
  /** Boxes, each followed by what is inside: `BOX` numbers of each. */
  boxes: Float64Array;
  /** `ROUTE` numbers of each route. */
  routes: Int32Array;
  /** x0, y0, x1, y1, … of all routes. */
  points: Float64Array;
  /** Edges of all routes. */
  edges: Int32Array;
}

const FORMS: readonly Box["form"][] = ["node", "closed", "open"];
const BOX = 8; // item, parent, depth, x, y, width, height, form
const ROUTE = 7; // from, to, kind, back, depth, end of its points, end of its edges

export function pack(scene: Scene): Packed {
  const { order, place } = inside(scene);
  const boxes = new Float64Array(order.length * BOX);
  order.forEach((index, at) => {
    const { item, parent, depth, x, y, width, height, form } = scene.boxes[index];
    boxes.set([item, parent < 0 ? -1 : place[parent], depth, x, y, width, height, FORMS.indexOf(form)], at * BOX);
  });
  const numPoints = scene.routes.reduce((sum, { points }) => sum + points.length, 0);
  const numEdges = scene.routes.reduce((sum, { edges }) => sum + edges.length, 0);
  const routes = new Int32Array(scene.routes.length * ROUTE);
  const points = new Float64Array(numPoints);
  const edges = new Int32Array(numEdges);
  let [pointEnd, edgeEnd] = [0, 0];
  scene.routes.forEach((route, at) => {
    points.set(route.points, pointEnd);
    edges.set(route.edges, edgeEnd);
    pointEnd += route.points.length;
    edgeEnd += route.edges.length;
    const { from, to, kind, back, depth } = route;
    routes.set([place[from], place[to], EDGE_KINDS.indexOf(kind), Number(back), depth, pointEnd, edgeEnd], at * ROUTE);
  });
  return { width: scene.width, height: scene.height, boxes, routes, points, edges };
}

/** What need not be copied when it is handed over. */
export const buffersOf = ({ boxes, routes, points, edges }: Packed): ArrayBuffer[] =>
  [boxes, routes, points, edges].map(({ buffer }) => buffer as ArrayBuffer);

/** Boxes so that each is followed by what is inside; a scene only has parents before children. */
function inside({ boxes }: Scene): { order: number[]; place: Int32Array } {
  const first = new Int32Array(boxes.length).fill(-1);
  const next = new Int32Array(boxes.length).fill(-1);
  const waiting: number[] = [];
  for (let index = boxes.length - 1; index >= 0; index--) {
    const { parent } = boxes[index];
    if (parent < 0) {
      waiting.push(index);
      continue;
    }
    next[index] = first[parent];
    first[parent] = index;
  }
  const order: number[] = [];
  const place = new Int32Array(boxes.length);
  while (waiting.length) {
    const index = waiting.pop()!;
    place[index] = order.length;
    order.push(index);
    const start = waiting.length;
    for (let child = first[index]; child >= 0; child = next[child]) waiting.push(child);
    for (let low = start, high = waiting.length - 1; low < high; low++, high--) [waiting[low], waiting[high]] = [waiting[high], waiting[low]];
  }
  return { order, place };
}

class PackedBox implements Box {
  private made: Text[] | null = null;

  constructor(
    readonly item: number,
    readonly parent: number,
    readonly depth: number,
    readonly x: number,
    readonly y: number,
    readonly width: number,
    readonly height: number,
    readonly form: Box["form"],
    private readonly graph: Graph,
    private readonly hasOut: Uint8Array,
  ) {}

  get texts(): Text[] {
    this.made ??= measure(this.graph.items[this.item], this.form === "open", this.hasOut[this.item] === 1, false).texts(this.width);
    return this.made;
  }
}

class PackedRoute implements Route {
  private made: number[] | null = null;

  constructor(
    private readonly packed: Packed,
    private readonly at: number,
    readonly from: number,
    readonly to: number,
    readonly kind: EdgeKind,
    readonly back: boolean,
    readonly depth: number,
  ) {}

  get points(): number[] {
    this.made ??= Array.from(this.packed.points.subarray(...this.range(5)));
    return this.made;
  }

  get edges(): number[] {
    return Array.from(this.packed.edges.subarray(...this.range(6)));
  }

  private range(column: number): [number, number] {
    const { routes } = this.packed;
    return [this.at ? routes[(this.at - 1) * ROUTE + column] : 0, routes[this.at * ROUTE + column]];
  }
}

export function unpack(packed: Packed, graph: Graph): { boxes: Box[]; routes: Route[] } {
  const numbers = packed.routes;
  const b = packed.boxes;
  const hasOut = new Uint8Array(graph.items.length);
  const routes: Route[] = [];
  for (let at = 0, r = 0; r < numbers.length; at++, r += ROUTE) {
    routes.push(new PackedRoute(packed, at, numbers[r], numbers[r + 1], EDGE_KINDS[numbers[r + 2]], numbers[r + 3] === 1, numbers[r + 4]));
    hasOut[b[numbers[r] * BOX]] = 1;
  }
  const boxes: Box[] = [];
  for (let at = 0; at < b.length; at += BOX) {
    boxes.push(new PackedBox(b[at], b[at + 1], b[at + 2], b[at + 3], b[at + 4], b[at + 5], b[at + 6], FORMS[b[at + 7]], graph, hasOut));
  }
  return { boxes, routes };
}

/** Bounds of routes: left, top, right, bottom. */
export function boundsOf({ routes, points }: Packed): Float32Array {
  const bounds = new Float32Array((routes.length / ROUTE) * 4);
  let at = 0;
  for (let route = 0; route * ROUTE < routes.length; route++) {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (; at < routes[route * ROUTE + 5]; at += 2) {
      left = Math.min(left, points[at]);
      right = Math.max(right, points[at]);
      top = Math.min(top, points[at + 1]);
      bottom = Math.max(bottom, points[at + 1]);
    }
    bounds[route * 4] = left;
    bounds[route * 4 + 1] = top;
    bounds[route * 4 + 2] = right;
    bounds[route * 4 + 3] = bottom;
  }
  return bounds;
}
