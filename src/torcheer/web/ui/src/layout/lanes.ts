/** Ways round the side: for lines that close a loop, and for those too long to be led through the rows. */

import type { Level, LevelLayout } from "./level";

/** Vertices of each row, from left to right. */
export type Rows = number[][];

export interface Lane {
  net: number;
  target: number;
}

const LANE_GAP = 8;
const FIRST_GAP = 12;
const STUB = 7;

export function sideLanes(
  level: Level, result: LevelLayout, rank: Int32Array, lanes: Lane[], tops: Float64Array, bottoms: Float64Array,
): void {
  if (!lanes.length) return;
  const numBoxes = level.widths.length;
  const rights = rightEdges(level, result, rank, tops.length);
  const spans = lanes.map(({ net, target }) => {
    const ends = [rank[level.nets[net].source.vertex], rank[level.nets[net].targets[target].vertex]];
    return { net, target, first: Math.min(...ends), last: Math.max(...ends) };
  });
  // The innermost first, so that a loop in a loop is drawn inside it.
  spans.sort((a, b) => a.last - a.first - (b.last - b.first) || a.first - b.first || a.net - b.net);
  for (const { net, target, first, last } of spans) {
    let x = 0;
    for (let row = first; row <= last; row++) x = Math.max(x, rights[row] + FIRST_GAP);
    for (let row = first; row <= last; row++) rights[row] = x - FIRST_GAP + LANE_GAP;
    const { source, targets } = level.nets[net];
    const end = targets[target];
    const startX = result.x[source.vertex] + source.offset;
    const startY = source.vertex < numBoxes ? tops[rank[source.vertex]] + level.heights[source.vertex] : tops[0];
    const endX = result.x[end.vertex] + end.offset;
    const leave = Math.max(startY, bottoms[rank[source.vertex]]) + STUB;
    const endY = tops[rank[end.vertex]];
    result.paths[net][target] = [startX, startY, startX, leave, x, leave, x, endY - STUB, endX, endY - STUB, endX, endY];
  }
}

/** How far right each row reaches, lines between rows included. */
function rightEdges(level: Level, result: LevelLayout, rank: Int32Array, numRows: number): Float64Array {
  const rights = new Float64Array(numRows).fill(-Infinity);
  result.x.forEach((x, vertex) => {
    rights[rank[vertex]] = Math.max(rights[rank[vertex]], x + (level.widths[vertex] ?? 0) / 2);
  });
  level.nets.forEach((net, index) =>
    net.targets.forEach((target, place) => {
      const path = result.paths[index][place];
      let most = -Infinity;
      for (let at = 0; at < path.length; at += 2) most = Math.max(most, path[at]);
      for (let row = rank[net.source.vertex]; row <= rank[target.vertex]; row++)
        rights[row] = Math.max(rights[row], most);
    }),
  );
  return rights;
}
