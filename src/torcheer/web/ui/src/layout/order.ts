/** The order of vertices within rows, so that few lines cross: sweeps by the mean place of neighbours. */

import type { Rowed } from "./level";
import type { Rows } from "./lanes";

const MOST_SWEEPS = 12;
const MANY_VERTICES = 4000;

export function orderRows(rowed: Rowed, numRows: number): Rows {
  const rows: Rows = Array.from({ length: numRows }, () => []);
  for (let vertex = 0; vertex < rowed.num; vertex++) rows[rowed.rank[vertex]].push(vertex);
  const lines = linesOf(rowed);
  const place = new Float64Array(rowed.num);
  let best = copyRows(rows);
  renumber(rows, place);
  let fewest = countCrossings(rowed, rows, lines, place);
  const sweeps = rowed.num > MANY_VERTICES ? 4 : MOST_SWEEPS;
  for (let sweep = 0; sweep < sweeps && fewest > 0; sweep++) {
    const down = sweep % 2 === 0;
    for (let step = 1; step < numRows; step++) sortRow(rowed, rows[down ? step : numRows - 1 - step], lines, place, down);
    swapNeighbours(rowed, rows, lines, place);
    const crossings = countCrossings(rowed, rows, lines, place);
    if (crossings < fewest) {
      fewest = crossings;
      best = copyRows(rows);
    } else if (sweep > 3 && crossings > fewest * 1.5) break;
  }
  return best;
}

/** For each vertex the lines to the row above and to the row below. */
interface Lines {
  up: number[][];
  down: number[][];
}

export function linesOf(rowed: Rowed): Lines {
  const up: number[][] = Array.from({ length: rowed.num }, () => []);
  const down: number[][] = Array.from({ length: rowed.num }, () => []);
  for (let line = 0; line < rowed.upper.length; line++) {
    up[rowed.lower[line]].push(line);
    down[rowed.upper[line]].push(line);
  }
  return { up, down };
}

const copyRows = (rows: Rows): Rows => rows.map((row) => row.slice());

function renumber(rows: Rows, place: Float64Array): void {
  for (const row of rows) row.forEach((vertex, at) => (place[vertex] = at));
}

/** Where a line touches its end: the vertex's place, and a little to the side for ports off its middle. */
function touch(place: Float64Array, half: Float64Array, vertex: number, offset: number): number {
  return place[vertex] + (0.45 * offset) / Math.max(1, half[vertex]);
}

function sortRow(rowed: Rowed, row: number[], lines: Lines, place: Float64Array, down: boolean): void {
  if (row.length < 2) return;
  const wanted = new Map<number, number>();
  for (const vertex of row) {
    const own = down ? lines.up[vertex] : lines.down[vertex];
    let sum = 0;
    for (const line of own) {
      const other = down ? rowed.upper[line] : rowed.lower[line];
      const offset = down ? rowed.upperOffset[line] : rowed.lowerOffset[line];
      sum += touch(place, rowed.half, other, offset);
    }
    wanted.set(vertex, own.length ? sum / own.length : place[vertex]);
  }
  row.sort((a, b) => wanted.get(a)! - wanted.get(b)! || place[a] - place[b]);
  row.forEach((vertex, at) => (place[vertex] = at));
}

/** Swap neighbours in a row where that alone removes crossings. */
function swapNeighbours(rowed: Rowed, rows: Rows, lines: Lines, place: Float64Array): void {
  for (const row of rows) {
    if (row.length > 60) continue;
    for (let at = 0; at + 1 < row.length; at++) {
      const [a, b] = [row[at], row[at + 1]];
      const before = pairCrossings(rowed, lines, place, a, b);
      if (before > 0 && pairCrossings(rowed, lines, place, b, a) < before) {
        row[at] = b;
        row[at + 1] = a;
        place[b] = at;
        place[a] = at + 1;
      }
    }
  }
}

function pairCrossings(rowed: Rowed, lines: Lines, place: Float64Array, left: number, right: number): number {
  let count = 0;
  for (const [own, ends, offsets] of [
    [lines.up, rowed.upper, rowed.upperOffset],
    [lines.down, rowed.lower, rowed.lowerOffset],
  ] as const)
    for (const first of own[left])
      for (const second of own[right]) {
        const x = touch(place, rowed.half, ends[first], offsets[first]);
        if (x > touch(place, rowed.half, ends[second], offsets[second])) count++;
      }
  return count;
}

/** Crossings of straight lines between neighbouring rows, counted with a tree of sums. */
export function countCrossings(rowed: Rowed, rows: Rows, lines: Lines, place: Float64Array): number {
  let total = 0;
  for (let row = 0; row + 1 < rows.length; row++) {
    const size = rows[row + 1].length;
    if (size < 2 || rows[row].length < 2) continue;
    const sums = new Int32Array(size + 1);
    let num = 0;
    for (const vertex of rows[row]) {
      const ends = lines.down[vertex].map((line) => place[rowed.lower[line]]);
      for (const end of ends) {
        let below = 0;
        for (let at = end + 1; at > 0; at -= at & -at) below += sums[at];
        total += num - below;
      }
      for (const end of ends) {
        for (let at = end + 1; at <= size; at += at & -at) sums[at]++;
        num++;
      }
    }
  }
  return total;
}
