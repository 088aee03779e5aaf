// A scene in arrays of numbers: what drawing 50,000 boxes at every frame and finding one under the mouse need.

import type { Graph } from "../scene/graph";
import { BOX, boundsOf, boxAt, numBoxes, numRoutes, ROUTE, routeAt, type Packed } from "../scene/packed";
import type { Box, Route } from "../scene/scene";

export class IndexedScene {
  readonly numBoxes: number;
  readonly numRoutes: number;
  readonly x: Float32Array;
  readonly y: Float32Array;
  readonly right: Float32Array;
  readonly bottom: Float32Array;
  /** One past the last box inside each: boxes come parents first, each followed by what is inside. */
  readonly end: Int32Array;
  /** Bounds of routes: left, top, right, bottom. */
  readonly bounds: Float32Array;
  private readonly boxOfItem: Int32Array;
  // Made when they are first drawn: most are never on the screen.
  private readonly boxes: (Box | undefined)[];
  private readonly routes: (Route | undefined)[];

  constructor(
    readonly scene: Packed,
    private readonly graph: Graph,
  ) {
    const count = (this.numBoxes = numBoxes(scene));
    this.numRoutes = numRoutes(scene);
    this.boxes = new Array<Box | undefined>(count);
    this.routes = new Array<Route | undefined>(this.numRoutes);
    this.x = new Float32Array(count);
    this.y = new Float32Array(count);
    this.right = new Float32Array(count);
    this.bottom = new Float32Array(count);
    this.end = new Int32Array(count);
    this.boxOfItem = new Int32Array(graph.items.length).fill(-1);
    for (let index = 0, at = 0; index < count; index++, at += BOX) {
      this.boxOfItem[scene.boxes[at]] = index;
      this.x[index] = scene.boxes[at + 3];
      this.y[index] = scene.boxes[at + 4];
      this.right[index] = scene.boxes[at + 3] + scene.boxes[at + 5];
      this.bottom[index] = scene.boxes[at + 4] + scene.boxes[at + 6];
      this.end[index] = index + 1;
    }
    for (let index = count - 1; index >= 0; index--) {
      const parent = scene.boxes[index * BOX + 1];
      if (parent >= 0) this.end[parent] = Math.max(this.end[parent], this.end[index]);
    }
    this.bounds = boundsOf(scene);
  }

  box(index: number): Box | undefined {
    if (!(index >= 0 && index < this.numBoxes)) return undefined;
    return (this.boxes[index] ??= boxAt(this.scene, this.graph, index));
  }

  route(index: number): Route {
    return (this.routes[index] ??= routeAt(this.scene, index));
  }

  /** The box of an item, -1 where it is not seen. */
  boxOf(item: number): number {
    return this.boxOfItem[item] ?? -1;
  }

  /** The innermost box at a point, -1 where there is none. */
  at(x: number, y: number): number {
    let found = -1;
    for (let index = 0; index < this.numBoxes; ) {
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
    const inflows: number[] = [];
    const outflows: number[] = [];
    const { routes } = this.scene;
    const isWithin = (other: number) => other >= box && other < this.end[box];
    for (let index = 0, at = 0; index < this.numRoutes; index++, at += ROUTE) {
      const [leaves, enters] = [isWithin(routes[at]), isWithin(routes[at + 1])];
      if (enters && (!leaves || routes[at] === box)) inflows.push(index);
      if (leaves && (!enters || routes[at + 1] === box)) outflows.push(index);
    }
    return { inflows, outflows };
  }
}
