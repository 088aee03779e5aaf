/** A laid-out picture: boxes, routes of edges and texts with their places. Drawn by Canvas2D, SVG and PDF alike. */

import type { EdgeKind } from "./graph";

export type TextRole = "title" | "line" | "count" | "shape" | "heading";

/** Height of the band at the top of an open box that has its name. It is drawn over the routes. */
export const HEADER = 22;

export interface Text {
  /** From the left of its box. */
  x: number;
  /** Baseline, from the top of its box. */
  y: number;
  text: string;
  size: number;
  bold: boolean;
  align: "left" | "middle" | "right";
  role: TextRole;
  /** Width at its size, as measured when it was placed. */
  width: number;
}

export interface Box {
  /** Index into `Graph.items`. */
  item: number;
  /** The box around it: an index into `Scene.boxes`, -1 at the top. */
  parent: number;
  depth: number;
  x: number;
  y: number;
  width: number;
  height: number;
  /** A leaf; a module that can be opened; one that is open. */
  form: "node" | "closed" | "open";
  texts: Text[];
}

export interface Route {
  /** The graph's edges it stands for. */
  edges: number[];
  /** Boxes: indices into `Scene.boxes`. */
  from: number;
  to: number;
  /** x0, y0, x1, y1, …: the first and the last point lie on borders of the two boxes. */
  points: number[];
  kind: EdgeKind;
  /** Whether it goes against the direction: it closes a loop. */
  back: boolean;
  /** Depth of the innermost box around the whole route. */
  depth: number;
}

export interface Scene {
  width: number;
  height: number;
  /** Where lines lead. */
  direction: "down" | "right";
  /** Parents before children: drawn in this order. */
  boxes: Box[];
  routes: Route[];
}
