/** A scene as arrays of numbers: what the layout makes. It crosses from the worker to the page in no time, where 10,000
 * objects would take as long as their layout. Texts do not cross: they follow from the items, and are made when drawn. */

import { EDGE_KINDS, type EdgeKind, type Graph } from "./graph";
import { measure } from "./measure";
import type { Box, Route, Scene, Text } from "./scene";

export interface Packed {
  width: number;
  height: number;
  direction: Scene["direction"];
  /** Boxes, each followed by what is inside: `BOX` numbers of each. */
  boxes: Float64Array;
  /** `ROUTE` numbers of each route. */
  routes: Int32Array;
  /** x0, y0, x1, y1, … of all routes. */
  points: Float64Array;
  /** Edges of all routes. */
  edges: Int32Array;
}

export const FORMS: readonly Box["form"][] = ["node", "closed", "open"];
export const BOX = 9; // item, parent, depth, x, y, width, height, form, whether an edge leaves it
export const ROUTE = 7; // from, to, kind, back, depth, end of its points, end of its edges

/** What need not be copied when it is handed over. */
export const buffersOf = ({ boxes, routes, points, edges }: Packed): ArrayBuffer[] =>
  [boxes, routes, points, edges].map(({ buffer }) => buffer as ArrayBuffer);

class PackedBox implements Box {
  readonly item: number;
  readonly parent: number;
  readonly depth: number;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly form: Box["form"];
  private made: Text[] | null = null;

  constructor(
    private readonly packed: Packed,
    private readonly graph: Graph,
    private readonly at: number,
  ) {
    const { boxes } = packed;
    this.item = boxes[at];
    this.parent = boxes[at + 1];
    this.depth = boxes[at + 2];
    this.x = boxes[at + 3];
    this.y = boxes[at + 4];
    this.width = boxes[at + 5];
    this.height = boxes[at + 6];
    this.form = FORMS[boxes[at + 7]];
  }

  get texts(): Text[] {
    const { boxes, direction } = this.packed;
    const item = this.graph.items[this.item];
    this.made ??= measure(item, this.form === "open", boxes[this.at + 8] === 1, direction === "right").texts(this.width);
    return this.made;
  }

  /** For Python: the fields of a box, as JSON has them. */
  toJSON(): Box {
    const { item, parent, depth, x, y, width, height, form, texts } = this;
    return { item, parent, depth, x, y, width, height, form, texts };
  }
}

class PackedRoute implements Route {
  readonly from: number;
  readonly to: number;
  readonly kind: EdgeKind;
  readonly back: boolean;
  readonly depth: number;
  private made: number[] | null = null;

  constructor(
    private readonly packed: Packed,
    private readonly at: number,
  ) {
    const { routes } = packed;
    this.from = routes[at];
    this.to = routes[at + 1];
    this.kind = EDGE_KINDS[routes[at + 2]];
    this.back = routes[at + 3] === 1;
    this.depth = routes[at + 4];
  }

  get points(): number[] {
    this.made ??= Array.from(this.packed.points.subarray(...this.range(5)));
    return this.made;
  }

  get edges(): number[] {
    return Array.from(this.packed.edges.subarray(...this.range(6)));
  }

  /** For Python: the fields of a route, as JSON has them. */
  toJSON(): Route {
    const { from, to, kind, back, depth, points, edges } = this;
    return { from, to, kind, back, depth, points, edges };
  }

  private range(column: number): [number, number] {
    const { routes } = this.packed;
    return [this.at ? routes[this.at - ROUTE + column] : 0, routes[this.at + column]];
  }
}

export const numBoxes = ({ boxes }: Packed): number => boxes.length / BOX;
export const numRoutes = ({ routes }: Packed): number => routes.length / ROUTE;
export const boxAt = (packed: Packed, graph: Graph, index: number): Box => new PackedBox(packed, graph, index * BOX);
export const routeAt = (packed: Packed, index: number): Route => new PackedRoute(packed, index * ROUTE);

/** All of it as objects. */
export function unpack(packed: Packed, graph: Graph): Scene {
  return {
    width: packed.width,
    height: packed.height,
    direction: packed.direction,
    boxes: Array.from({ length: numBoxes(packed) }, (_, index) => boxAt(packed, graph, index)),
    routes: Array.from({ length: numRoutes(packed) }, (_, index) => routeAt(packed, index)),
  };
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
