/** Which row each vertex goes into: below everything it reads, close to what reads it, rows not too wide. */

import type { Level } from "./level";

/** More boxes than this beside one another are split into further rows. */
const WIDEST_ROW = 24;

export function rankVertices(level: Level, isBack: (source: number, target: number) => boolean): Int32Array {
  const numBoxes = level.widths.length;
  const firstOut = numBoxes + level.numIn;
  const rank = new Int32Array(firstOut + level.numOut);
  const above: number[][] = Array.from({ length: numBoxes }, () => []);
  const below: number[][] = Array.from({ length: numBoxes }, () => []);
  for (const net of level.nets)
    for (const target of net.targets) {
      if (isBack(net.source.vertex, target.vertex)) continue;
      if (target.vertex < numBoxes) above[target.vertex].push(net.source.vertex);
      if (net.source.vertex < numBoxes) below[net.source.vertex].push(target.vertex);
    }
  const first = level.numIn > 0 ? 1 : 0;
  const filled: number[] = [];
  let last = first - 1;
  for (let box = 0; box < numBoxes; box++) {
    let row = first;
    for (const source of above[box]) row = Math.max(row, rank[source] + 1);
    while ((filled[row] ?? 0) >= WIDEST_ROW) row++;
    filled[row] = (filled[row] ?? 0) + 1;
    rank[box] = row;
    last = Math.max(last, row);
  }
  for (let port = firstOut; port < rank.length; port++) rank[port] = last + 1;
  pullDown(rank, above, below, filled);
  return rank;
}

/** Move boxes that wait for nothing, or that feed more than they read, down to what reads them. */
function pullDown(rank: Int32Array, above: number[][], below: number[][], filled: number[]): void {
  for (let box = above.length - 1; box >= 0; box--) {
    if (!below[box].length || new Set(above[box]).size > 1) continue;
    let row = Infinity;
    for (const target of below[box]) row = Math.min(row, rank[target] - 1);
    // One line in, one or more out: a lane is needed above or below it. Only what has no line in gains for sure.
    if (above[box].length && new Set(below[box]).size <= 1) continue;
    if (row <= rank[box] || (filled[row] ?? 0) >= WIDEST_ROW) continue;
    filled[rank[box]]--;
    filled[row] = (filled[row] ?? 0) + 1;
    rank[box] = row;
  }
}
