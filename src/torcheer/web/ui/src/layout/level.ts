/** One level of the hierarchy: boxes of known size and the nets between them, laid out in rows from top to bottom.
 *
 * A net is a tensor (or all that leaves one box for the same reason): one source, any number of targets. Its targets
 * share the lane it runs down in, so a mask that goes to forty blocks takes one lane and not forty.
 */

import { orderRows } from "./order";
import { placeRows } from "./place";
import { rankVertices } from "./rank";
import { type Lane, type Rows, sideLanes } from "./lanes";

/** An end of a net: a vertex, and how far from its middle the line touches it. */
export interface End {
  vertex: number;
  offset: number;
}

export interface Net {
  source: End;
  targets: End[];
}

/** Vertices are numbered: boxes in order of execution, then ports where nets enter, then ports where nets leave. */
export interface Level {
  widths: number[];
  heights: number[];
  numIn: number;
  numOut: number;
  nets: Net[];
}

/** Where things are, from the top left corner of the level's content. */
export interface LevelLayout {
  width: number;
  height: number;
  /** Middle of each vertex, ports included. */
  x: number[];
  /** Top of each box. */
  y: number[];
  /** For each net and target the way from source to target: x0, y0, x1, y1, … */
  paths: number[][][];
  /** For each net and target whether the way leads back up. */
  back: boolean[][];
}

export const GAP_X = 18;
export const GAP_Y = 22;
const LANE_WIDTH = 10;
/** Lanes through rows are drawn well up to about this many pieces; what is beyond goes down the side. */
const MAX_LANE_PIECES = 60_000;

/** A level with the pieces of lanes as further vertices, and the lines between neighbouring rows. */
export interface Rowed {
  num: number;
  numReal: number;
  rank: Int32Array;
  half: Float64Array;
  /** Lines from a row to the next: vertices and offsets of both ends. */
  upper: number[];
  lower: number[];
  upperOffset: number[];
  lowerOffset: number[];
}

export function layoutLevel(level: Level): LevelLayout {
  const numBoxes = level.widths.length;
  const numReal = numBoxes + level.numIn + level.numOut;
  const isBack = (source: number, target: number) => source < numBoxes && target <= source;
  const rank = rankVertices(level, isBack);
  const numRows = Math.max(0, ...rank) + 1;
  const { rowed, lanes, side } = withLanes(level, rank, isBack);
  const rows: Rows = orderRows(rowed, numRows);
  const x = placeRows(rowed, rows);
  const { tops, bottoms, height } = stackRows(level, rank, numRows, rowed, x);
  const result: LevelLayout = {
    width: 0,
    height,
    x: Array.from(x.subarray(0, numReal)),
    y: level.heights.map((_, box) => tops[rank[box]]),
    paths: level.nets.map((net) => net.targets.map(() => [])),
    back: level.nets.map((net) => net.targets.map((target) => isBack(net.source.vertex, target.vertex))),
  };
  followLanes(level, result, rank, lanes, x, tops, bottoms);
  sideLanes(level, result, rank, side, tops, bottoms);
  shiftToOrigin(level, result);
  return result;
}

/** Put a piece of lane into every row a net passes through; nets that are too long for that go down the side. */
function withLanes(level: Level, rank: Int32Array, isBack: (source: number, target: number) => boolean) {
  const numBoxes = level.widths.length;
  const rowed: Rowed = {
    num: rank.length, numReal: rank.length, rank, half: new Float64Array(0),
    upper: [], lower: [], upperOffset: [], lowerOffset: [],
  };
  const ranks = Array.from(rank);
  const lanes: number[][] = [];
  const side: Lane[] = [];
  let budget = MAX_LANE_PIECES;
  for (const [index, net] of level.nets.entries()) {
    const start = rank[net.source.vertex];
    let end = start;
    net.targets.forEach((target, place) => {
      if (isBack(net.source.vertex, target.vertex)) side.push({ net: index, target: place });
      else end = Math.max(end, rank[target.vertex]);
    });
    const lane: number[] = [];
    if (end - start - 1 > budget) {
      net.targets.forEach((target, place) => {
        if (rank[target.vertex] > start + 1) side.push({ net: index, target: place });
      });
      end = start + 1;
    }
    budget -= Math.max(0, end - start - 1);
    let above = net.source;
    for (let row = start + 1; row < end; row++) {
      const piece = { vertex: ranks.length, offset: 0 };
      ranks.push(row);
      lane.push(piece.vertex);
      join(rowed, above, piece);
      above = piece;
    }
    for (const target of net.targets) {
      const row = rank[target.vertex];
      if (row <= start || row > end || isBack(net.source.vertex, target.vertex)) continue;
      join(rowed, row === start + 1 ? net.source : { vertex: lane[row - start - 2], offset: 0 }, target);
    }
    lanes.push(lane);
  }
  rowed.num = ranks.length;
  rowed.rank = Int32Array.from(ranks);
  rowed.half = new Float64Array(ranks.length).fill(LANE_WIDTH / 2);
  level.widths.forEach((width, box) => (rowed.half[box] = width / 2));
  rowed.half.fill(LANE_WIDTH / 2, numBoxes);
  return { rowed, lanes, side };
}

function join(rowed: Rowed, above: End, below: End): void {
  rowed.upper.push(above.vertex);
  rowed.upperOffset.push(above.offset);
  rowed.lower.push(below.vertex);
  rowed.lowerOffset.push(below.offset);
}

/** Tops and bottoms of rows. Lines that go far to the side get a higher gap, so that they do not run flat. */
function stackRows(
  level: Level, rank: Int32Array, numRows: number, rowed: Rowed, x: Float64Array,
) {
  const heights = new Float64Array(numRows);
  level.heights.forEach((height, box) => (heights[rank[box]] = Math.max(heights[rank[box]], height)));
  const farthest = new Float64Array(numRows);
  for (let line = 0; line < rowed.upper.length; line++) {
    const from = x[rowed.upper[line]] + rowed.upperOffset[line];
    const to = x[rowed.lower[line]] + rowed.lowerOffset[line];
    const row = rowed.rank[rowed.upper[line]];
    farthest[row] = Math.max(farthest[row], Math.abs(from - to));
  }
  const tops = new Float64Array(numRows);
  const bottoms = new Float64Array(numRows);
  let y = 0;
  for (let row = 0; row < numRows; row++) {
    tops[row] = y;
    y += heights[row];
    bottoms[row] = y;
    // Rows of ports alone are the borders: no gap is needed to get away from them.
    const gap = heights[row] === 0 || (row + 1 < numRows && heights[row + 1] === 0) ? GAP_Y * 0.6 : GAP_Y;
    if (row + 1 < numRows) y += gap + Math.min(40, farthest[row] / 8);
  }
  return { tops, bottoms, height: y };
}

function followLanes(
  level: Level, result: LevelLayout, rank: Int32Array, lanes: number[][],
  x: Float64Array, tops: Float64Array, bottoms: Float64Array,
): void {
  const numBoxes = level.widths.length;
  level.nets.forEach((net, index) => {
    const start = rank[net.source.vertex];
    const startX = x[net.source.vertex] + net.source.offset;
    const startY = net.source.vertex < numBoxes ? tops[start] + level.heights[net.source.vertex] : tops[start];
    net.targets.forEach((target, place) => {
      const end = rank[target.vertex];
      if (result.back[index][place] || end - start - 1 > lanes[index].length) return;
      const path = [startX, startY];
      if (bottoms[start] > startY) path.push(startX, bottoms[start]);
      for (let row = start + 1; row < end; row++) {
        const laneX = x[lanes[index][row - start - 1]];
        path.push(laneX, tops[row]);
        if (bottoms[row] > tops[row]) path.push(laneX, bottoms[row]);
      }
      path.push(x[target.vertex] + target.offset, tops[end]);
      result.paths[index][place] = path;
    });
  });
}

/** Move everything so that it begins at 0 and measure the width. */
function shiftToOrigin(level: Level, result: LevelLayout): void {
  let low = Infinity;
  let high = -Infinity;
  result.x.forEach((x, vertex) => {
    const half = (level.widths[vertex] ?? LANE_WIDTH) / 2;
    low = Math.min(low, x - half);
    high = Math.max(high, x + half);
  });
  for (const path of result.paths.flat())
    for (let at = 0; at < path.length; at += 2) {
      low = Math.min(low, path[at] - 2);
      high = Math.max(high, path[at] + 2);
    }
  if (low === Infinity) return;
  result.width = high - low;
  result.x = result.x.map((x) => x - low);
  for (const path of result.paths.flat()) for (let at = 0; at < path.length; at += 2) path[at] -= low;
}
