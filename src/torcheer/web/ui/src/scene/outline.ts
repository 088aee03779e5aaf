/** The curve of a route, as commands that Canvas2D, SVG and PDF all know. */

import type { Route } from "./scene";

/** "M" and "L" have a point, "C" two control points and a point. */
export type Command = ["M" | "L", number, number] | ["C", number, number, number, number, number, number];

const CORNER = 7;

/** Lines that go on downwards (or to the right) swing from lane to lane; those that lead back have round corners. */
export function outline(route: Route, direction: "down" | "right"): Command[] {
  return route.back ? roundCorners(route.points) : swing(route.points, direction);
}

function swing(points: number[], direction: "down" | "right"): Command[] {
  const commands: Command[] = [["M", points[0], points[1]]];
  for (let at = 2; at < points.length; at += 2) {
    const [x0, y0, x1, y1] = points.slice(at - 2, at + 2);
    const [across, along] = direction === "down" ? [x1 - x0, y1 - y0] : [y1 - y0, x1 - x0];
    if (Math.abs(across) < 0.5 || Math.abs(along) < 0.5) commands.push(["L", x1, y1]);
    else if (direction === "down") commands.push(["C", x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1]);
    else commands.push(["C", (x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1]);
  }
  return commands;
}

function roundCorners(points: number[]): Command[] {
  const commands: Command[] = [["M", points[0], points[1]]];
  const last = points.length - 2;
  for (let at = 2; at < last; at += 2) {
    const [x, y] = [points[at], points[at + 1]];
    const before = towards(x, y, points[at - 2], points[at - 1]);
    const after = towards(x, y, points[at + 2], points[at + 3]);
    commands.push(["L", before[0], before[1]], ["C", x, y, x, y, after[0], after[1]]);
  }
  commands.push(["L", points[last], points[last + 1]]);
  return commands;
}

/** The point a corner away from x, y, at most half of the way. */
function towards(x: number, y: number, x1: number, y1: number): [number, number] {
  const distance = Math.hypot(x1 - x, y1 - y);
  const part = distance ? Math.min(CORNER, distance / 2) / distance : 0;
  return [x + (x1 - x) * part, y + (y1 - y) * part];
}

export interface Arrow {
  x: number;
  y: number;
  /** Unit vector it points along. */
  dx: number;
  dy: number;
}

/** Where the head of the arrow is, and which way it points. */
export function arrowOf(route: Route, direction: "down" | "right"): Arrow {
  const { points } = route;
  const end = points.length;
  const [x, y] = [points[end - 2], points[end - 1]];
  if (!route.back && direction === "down") return { x, y, dx: 0, dy: Math.sign(y - points[end - 3]) || 1 };
  if (!route.back) return { x, y, dx: Math.sign(x - points[end - 4]) || 1, dy: 0 };
  const distance = Math.hypot(x - points[end - 4], y - points[end - 3]) || 1;
  return { x, y, dx: (x - points[end - 4]) / distance, dy: (y - points[end - 3]) / distance };
}
