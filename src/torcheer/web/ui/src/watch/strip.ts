// A histogram over time as pixels: a column for each stretch of steps, dark where many values are.

import type { Rows } from "./run";

export interface Range {
  low: number;
  high: number;
}

export function rangeOf(rows: Rows): Range | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of rows.stats.low) if (value !== null && value < low) low = value;
  for (const value of rows.stats.high) if (value !== null && value > high) high = value;
  if (low > high) return null;
  if (low === high) return { low: low - 0.5, high: high + 0.5 };
  return { low, high };
}

/** The row of a step: the last that begins at or before it. */
export function rowAt(rows: Rows, step: number): number {
  let low = 0;
  let high = rows.steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows.steps[middle] <= step) low = middle;
    else high = middle - 1;
  }
  return low;
}

export function stripPixels(
  rows: Rows,
  steps: readonly [number, number],
  range: Range,
  width: number,
  height: number,
  tint: readonly [number, number, number],
  ground: readonly [number, number, number],
): ImageData {
  const image = new ImageData(width, height);
  const { data } = image;
  let painted = -1;
  for (let x = 0; x < width; x++) {
    const step = steps[0] + ((x + 0.5) / width) * (steps[1] - steps[0]);
    const isInside = rows.steps.length > 0 && step >= rows.steps[0] - 1 && step <= rows.last_steps[rows.last_steps.length - 1] + 1;
    const row = isInside ? rowAt(rows, step) : -1;
    if (row >= 0 && row === painted) {
      copyColumn(data, x, width, height);
      continue;
    }
    painted = row;
    const shades = row < 0 ? null : shadesOf(rows, row, range, height);
    for (let y = 0; y < height; y++) {
      const shade = shades ? shades[y] : 0;
      const at = (y * width + x) * 4;
      for (let channel = 0; channel < 3; channel++) data[at + channel] = ground[channel] + shade * (tint[channel] - ground[channel]);
      data[at + 3] = 255;
    }
  }
  return image;
}

/** 0 for no value, from a light shade for one value up to 1 for the fullest bin. */
function shadesOf(rows: Rows, row: number, range: Range, height: number): Float32Array {
  const shades = new Float32Array(height);
  const counts = rows.counts[row];
  const low = rows.stats.low[row];
  const high = rows.stats.high[row];
  if (low === null || high === null) return shades;
  const most = Math.max(1, ...counts);
  const span = range.high - range.low;
  for (let y = 0; y < height; y++) {
    const top = range.high - (y / height) * span;
    const bottom = range.high - ((y + 1) / height) * span;
    if (top < low || bottom > high) continue;
    const value = Math.min(Math.max((top + bottom) / 2, low), high);
    const bin = high > low ? Math.min(counts.length - 1, Math.floor(((value - low) / (high - low)) * counts.length)) : counts.length >> 1;
    const count = high > low ? counts[bin] : most;
    if (count > 0) shades[y] = 0.14 + 0.86 * Math.sqrt(count / most);
  }
  return shades;
}

function copyColumn(data: Uint8ClampedArray, x: number, width: number, height: number): void {
  for (let y = 0; y < height; y++) {
    const at = (y * width + x) * 4;
    data[at] = data[at - 4];
    data[at + 1] = data[at - 3];
    data[at + 2] = data[at - 2];
    data[at + 3] = 255;
  }
}
