// A scene in arrays of numbers: what drawing 50,000 boxes at every frame and finding one under the mouse need.

import type { Box, Route, Scene } from "../scene/scene";

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

  constructor(readonly scene: Scene) {
    const { boxes, routes } = inside(scene);
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
    this.bounds = boundsOf(routes);
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

/** Boxes so that each is followed by what is inside; a scene only has parents before children. */
function inside(scene: Scene): { boxes: Box[]; routes: Route[] } {
  const children = new Map<number, number[]>();
  scene.boxes.forEach((box, index) => {
    const siblings = children.get(box.parent);
    if (siblings) siblings.push(index);
    else children.set(box.parent, [index]);
  });
  const place = new Int32Array(scene.boxes.length);
  const boxes: Box[] = [];
  const waiting = [...(children.get(-1) ?? [])].reverse();
  while (waiting.length) {
    const index = waiting.pop()!;
    const box = scene.boxes[index];
    place[index] = boxes.length;
    boxes.push({ ...box, parent: box.parent < 0 ? -1 : place[box.parent] });
    const inner = children.get(index);
    if (inner) for (let at = inner.length - 1; at >= 0; at--) waiting.push(inner[at]);
  }
  const routes = scene.routes.map((route) => ({ ...route, from: place[route.from], to: place[route.to] }));
  return { boxes, routes };
}

function boundsOf(routes: Route[]): Float32Array {
  const bounds = new Float32Array(routes.length * 4);
  routes.forEach((route, index) => {
    let left = Infinity;
    let top = Infinity;
    let right = -Infinity;
    let bottom = -Infinity;
    for (let at = 0; at < route.points.length; at += 2) {
      left = Math.min(left, route.points[at]);
      right = Math.max(right, route.points[at]);
      top = Math.min(top, route.points[at + 1]);
      bottom = Math.max(bottom, route.points[at + 1]);
    }
    bounds.set([left, top, right, bottom], index * 4);
  });
  return bounds;
}
