// A scene in arrays of numbers: what drawing 50,000 boxes at every frame and finding one under the mouse need.

import type { Graph } from "../scene/graph";
import type { Box, Route } from "../scene/scene";
import { boundsOf, unpack, type Packed } from "./packed";

export class IndexedScene {
  readonly boxes: Box[];
  readonly routes: Route[];
  readonly x: Float32Array;
  readonly y: Float32Array;
  readonly right: Float32Array;
  readonly bottom: Float32Array;
  /** One past the last box inside each: boxes come parents first, each followed by what is inside. */
  readonly end: Int32Array;
  /** Bounds of routes: left, top, right, bottom. */
  readonly bounds: Float32Array;
  readonly boxOfItem = new Map<number, number>();
  private inflows: number[][] | null = null;
  private outflows: number[][] | null = null;

  constructor(
    readonly scene: Packed,
    graph: Graph,
  ) {
    const { boxes, routes } = unpack(scene, graph);
    this.boxes = boxes;
    this.routes = routes;
    const count = boxes.length;
    this.x = new Float32Array(count);
    this.y = new Float32Array(count);
    this.right = new Float32Array(count);
    this.bottom = new Float32Array(count);
    this.end = new Int32Array(count);
    for (let index = 0; index < count; index++) {
      const box = boxes[index];
      this.x[index] = box.x;
      this.y[index] = box.y;
      this.right[index] = box.x + box.width;
      this.bottom[index] = box.y + box.height;
      this.end[index] = index + 1;
      this.boxOfItem.set(box.item, index);
    }
    for (let index = count - 1; index >= 0; index--) {
      const parent = boxes[index].parent;
      if (parent >= 0) this.end[parent] = Math.max(this.end[parent], this.end[index]);
    }
    this.bounds = boundsOf(scene);
  }

  /** The innermost box at a point, -1 where there is none. */
  at(x: number, y: number): number {
    let found = -1;
    for (let index = 0; index < this.boxes.length; ) {
      if (x < this.x[index] || x > this.right[index] || y < this.y[index] || y > this.bottom[index]) {
        index = this.end[index];
      } else {
        found = index;
        index++;
      }
    }
    return found;
  }

  /** Routes into and out of a box, those of what is inside it included where they leave it. */
  routesOf(box: number): { inflows: number[]; outflows: number[] } {
    if (this.inflows === null || this.outflows === null) {
      this.inflows = this.boxes.map(() => []);
      this.outflows = this.boxes.map(() => []);
      this.routes.forEach((route, index) => {
        this.inflows![route.to]?.push(index);
        this.outflows![route.from]?.push(index);
      });
    }
    const inflows: number[] = [];
    const outflows: number[] = [];
    const isInside = (other: number) => other > box && other < this.end[box];
    for (let inner = box; inner < this.end[box]; inner++) {
      for (const route of this.inflows[inner]) if (!isInside(this.routes[route].from)) inflows.push(route);
      for (const route of this.outflows[inner]) if (!isInside(this.routes[route].to)) outflows.push(route);
    }
    return { inflows, outflows };
  }
}
