// A histogram over time as three lines: where a tenth, half and nine tenths of the values lie below.

import type { Rows } from "./run";

const SHARES = [0.1, 0.5, 0.9] as const;

/** For each share its value in every row; NaN where a row has no values. */
export function quantileLines(rows: Rows): Float64Array[] {
  const lines = SHARES.map(() => new Float64Array(rows.steps.length).fill(NaN));
  rows.counts.forEach((counts, row) => {
    const [low, high] = [rows.stats.low[row], rows.stats.high[row]];
    const total = counts.reduce((sum, count) => sum + count, 0);
    if (low == null || high == null || !total) return;
    let [bin, below] = [0, 0];
    SHARES.forEach((share, line) => {
      while (bin < counts.length - 1 && below + counts[bin] < share * total) below += counts[bin++];
      const within = counts[bin] ? (share * total - below) / counts[bin] : 0;
      lines[line][row] = low + ((bin + within) / counts.length) * (high - low);
    });
  });
  return lines;
}
