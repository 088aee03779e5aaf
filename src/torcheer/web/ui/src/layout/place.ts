/** Where vertices are from left to right: Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment" (2001).
 *
 * Vertices are strung on vertical lines, lanes first, so that long lines are straight; four such layouts (from above,
 * from below, leaning left, leaning right) are averaged. Two things are different here. Lines touch boxes at
 * ports off their middle, so a vertex hangs shifted in its block. And where a box has a box and lanes as
 * neighbours, it hangs under the box: so the trunk of a network is straight and skip connections go round it.
 */

import { GAP_X, type Rowed } from "./level";
import { linesOf } from "./order";
import type { Rows } from "./lanes";

interface Side {
  /** Lines of each vertex to the row it is hung under, and to the other one. */
  lines: number[][];
  others: number[][];
  otherEnds: number[];
  ends: number[];
  endOffsets: number[];
  ownOffsets: number[];
  /** Length of the longest way from each vertex on, in the direction of `lines`. */
  far: Int32Array;
}

export function placeRows(rowed: Rowed, rows: Rows): Float64Array {
  const place = new Int32Array(rowed.num);
  for (const row of rows) row.forEach((vertex, at) => (place[vertex] = at));
  const both = linesOf(rowed);
  const far = longestWays(rowed, rows, both);
  const refused = conflicts(rowed, rows, both.up, place);
  const candidates: Float64Array[] = [];
  for (const fromAbove of [true, false]) {
    const side: Side = fromAbove
      ? { lines: both.up, others: both.down, otherEnds: rowed.lower, ends: rowed.upper, endOffsets: rowed.upperOffset, ownOffsets: rowed.lowerOffset,
          far: far.up }
      : { lines: both.down, others: both.up, otherEnds: rowed.upper, ends: rowed.lower, endOffsets: rowed.lowerOffset, ownOffsets: rowed.upperOffset,
          far: far.down };
    const ordered = fromAbove ? rows : [...rows].reverse();
    for (const leansLeft of [true, false]) candidates.push(candidate(rowed, ordered, place, side, refused, leansLeft));
  }
  const x = balance(rowed, candidates);
  straighten(rowed, rows, both, x);
  return x;
}

/** Where everything passes through one vertex, move all that is below so that it is right under the one before. */
function straighten(rowed: Rowed, rows: Rows, both: { up: number[][]; down: number[][] }, x: Float64Array): void {
  /** Where lines touch a vertex, those to boxes if there are any. */
  const mean = (lines: number[], ends: number[], offsets: number[]) => {
    const boxes = lines.filter((line) => ends[line] < rowed.numReal);
    const among = boxes.length ? boxes : lines;
    return among.length ? among.reduce((sum, line) => sum + offsets[line], 0) / among.length : 0;
  };
  let shift = 0;
  let wanted: number | undefined;
  for (const row of rows) {
    if (row.length === 1) {
      const [vertex] = row;
      const touched = x[vertex] + mean(both.up[vertex], rowed.upper, rowed.lowerOffset);
      if (wanted !== undefined && both.up[vertex].length) shift = wanted - touched;
      wanted = x[vertex] + shift + mean(both.down[vertex], rowed.lower, rowed.upperOffset);
      if (!both.down[vertex].length) wanted = undefined;
    }
    for (const vertex of row) x[vertex] += shift;
  }
}

/** How many boxes lie on the longest way up and down from each vertex: the trunk of the network is the longest. */
function longestWays(rowed: Rowed, rows: Rows, both: { up: number[][]; down: number[][] }) {
  const up = new Int32Array(rowed.num);
  const down = new Int32Array(rowed.num);
  const own = (vertex: number) => (vertex < rowed.numReal ? 1 : 0);
  for (const row of rows)
    for (const vertex of row)
      for (const line of both.up[vertex]) up[vertex] = Math.max(up[vertex], up[rowed.upper[line]] + own(vertex));
  for (let at = rows.length - 1; at >= 0; at--)
    for (const vertex of rows[at])
      for (const line of both.down[vertex])
        down[vertex] = Math.max(down[vertex], down[rowed.lower[line]] + own(vertex));
  return { up, down };
}

/** Lines that would cut a lane: lanes are kept straight, the others bend. */
function conflicts(rowed: Rowed, rows: Rows, up: number[][], place: Int32Array): Uint8Array {
  const refused = new Uint8Array(rowed.upper.length);
  const isLane = (vertex: number) => vertex >= rowed.numReal;
  for (let index = 1; index < rows.length; index++) {
    const row = rows[index];
    let left = 0;
    let scanned = 0;
    for (let at = 0; at < row.length; at++) {
      const lane = isLane(row[at]) ? up[row[at]].find((line) => isLane(rowed.upper[line])) : undefined;
      if (lane === undefined && at < row.length - 1) continue;
      const right = lane === undefined ? rows[index - 1].length - 1 : place[rowed.upper[lane]];
      for (; scanned <= at; scanned++)
        for (const line of up[row[scanned]]) {
          const end = place[rowed.upper[line]];
          const both = isLane(row[scanned]) && isLane(rowed.upper[line]);
          if (!both && (end < left || end > right)) refused[line] = 1;
        }
      left = right;
    }
  }
  return refused;
}

function candidate(
  rowed: Rowed, rows: Rows, place: Int32Array, side: Side, refused: Uint8Array, leansLeft: boolean,
): Float64Array {
  const mirror = leansLeft ? 1 : -1;
  const { root, shift } = align(rowed, rows, place, side, refused, leansLeft);
  const blocks = separations(rowed, rows, root, shift, mirror);
  const found = compact(rowed, root, blocks);
  const x = new Float64Array(rowed.num);
  for (let vertex = 0; vertex < rowed.num; vertex++) x[vertex] = mirror * (found[root[vertex]] + mirror * shift[vertex]);
  return x;
}

/** String vertices together: each hangs on at most one of the row before, and no two such lines cross. */
function align(
  rowed: Rowed, rows: Rows, place: Int32Array, side: Side, refused: Uint8Array, leansLeft: boolean,
) {
  const root = Int32Array.from({ length: rowed.num }, (_, vertex) => vertex);
  const shift = new Float64Array(rowed.num);
  const taken = new Uint8Array(rowed.num);
  for (const row of rows) {
    let reached = leansLeft ? -1 : Infinity;
    for (let step = 0; step < row.length; step++) {
      const vertex = row[leansLeft ? step : row.length - 1 - step];
      for (const line of preferred(rowed, vertex, place, side, leansLeft)) {
        const end = side.ends[line];
        const at = place[end];
        if (refused[line] || taken[end] || (leansLeft ? at <= reached : at >= reached)) continue;
        root[vertex] = root[end];
        shift[vertex] = shift[end] + side.endOffsets[line] - side.ownOffsets[line];
        taken[end] = 1;
        reached = at;
        break;
      }
    }
  }
  return { root, shift };
}

/** The lines a vertex may hang on, best first: of those to its own kind, box or lane, those on the longest way, and
 * of these the middle ones. On the other kind it hangs only where that has no vertex of its own kind to carry. */
function preferred(rowed: Rowed, vertex: number, place: Int32Array, side: Side, leansLeft: boolean): number[] {
  const lines = side.lines[vertex];
  const isBox = (other: number) => other < rowed.numReal;
  const ownKind = lines.filter((line) => isBox(side.ends[line]) === isBox(vertex));
  const carriesOwn = (end: number) => side.others[end].some((line) => isBox(side.otherEnds[line]) === isBox(end));
  const fit = ownKind.length ? ownKind : lines.filter((line) => !carriesOwn(side.ends[line]));
  if (fit.length < 2) return fit;
  const farthest = Math.max(...fit.map((line) => side.far[side.ends[line]]));
  const among = fit.filter((line) => side.far[side.ends[line]] === farthest);
  among.sort((a, b) => place[side.ends[a]] - place[side.ends[b]] || side.endOffsets[a] - side.endOffsets[b]);
  const middle = (among.length - 1) / 2;
  const [low, high] = [among[Math.floor(middle)], among[Math.ceil(middle)]];
  return leansLeft ? [low, high] : [high, low];
}

interface Separation {
  from: number;
  to: number;
  distance: number;
}

/** How far apart blocks must be: from neighbours in rows. */
function separations(rowed: Rowed, rows: Rows, root: Int32Array, shift: Float64Array, mirror: number): Separation[] {
  const found: Separation[] = [];
  for (const row of rows)
    for (let at = 0; at + 1 < row.length; at++) {
      const [left, right] = mirror > 0 ? [row[at], row[at + 1]] : [row[at + 1], row[at]];
      const distance = rowed.half[left] + GAP_X + rowed.half[right] + mirror * (shift[left] - shift[right]);
      found.push({ from: root[left], to: root[right], distance });
    }
  return found;
}

/** The smallest places that keep all separations, then as far right as the next block allows. */
function compact(rowed: Rowed, root: Int32Array, separations: Separation[]): Float64Array {
  const x = new Float64Array(rowed.num);
  const out: Separation[][] = [];
  const waiting = new Int32Array(rowed.num);
  for (const separation of separations) {
    (out[separation.from] ??= []).push(separation);
    waiting[separation.to]++;
  }
  const order: number[] = [];
  for (let vertex = 0; vertex < rowed.num; vertex++) if (root[vertex] === vertex && !waiting[vertex]) order.push(vertex);
  for (let at = 0; at < order.length; at++)
    for (const { from, to, distance } of out[order[at]] ?? []) {
      x[to] = Math.max(x[to], x[from] + distance);
      if (--waiting[to] === 0) order.push(to);
    }
  for (let at = order.length - 1; at >= 0; at--) {
    let most = Infinity;
    for (const { to, distance } of out[order[at]] ?? []) most = Math.min(most, x[to] - distance);
    if (most < Infinity) x[order[at]] = Math.max(x[order[at]], most);
  }
  return x;
}

/** Align the candidates with the narrowest and take the mean of the two middle ones, which keeps separations. */
function balance(rowed: Rowed, candidates: Float64Array[]): Float64Array {
  const extents = candidates.map((x) => extent(rowed, x));
  const widths = extents.map(([low, high]) => high - low);
  const narrowest = extents[widths.indexOf(Math.min(...widths))];
  candidates.forEach((x, index) => {
    // Those leaning left are aligned at the left, the others at the right.
    const by = index % 2 === 0 ? narrowest[0] - extents[index][0] : narrowest[1] - extents[index][1];
    for (let vertex = 0; vertex < x.length; vertex++) x[vertex] += by;
  });
  const result = new Float64Array(rowed.num);
  for (let vertex = 0; vertex < rowed.num; vertex++) {
    const four = candidates.map((x) => x[vertex]).sort((a, b) => a - b);
    result[vertex] = (four[1] + four[2]) / 2;
  }
  return result;
}

function extent(rowed: Rowed, x: Float64Array): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (let vertex = 0; vertex < rowed.num; vertex++) {
    low = Math.min(low, x[vertex] - rowed.half[vertex]);
    high = Math.max(high, x[vertex] + rowed.half[vertex]);
  }
  return [low, high];
}
