// A profile as `views/profile.py` writes it.

import { bytesText, countText, numberText, percentText, shapeText, shortCount, timeText } from "../data/text";

export interface Profile {
  model: string;
  run: Record<string, unknown> & { framework: string; num_repeats: number | null; error: string | null };
  columns: ProfileColumn[];
  rows: ProfileRow[];
  totals: Record<string, number | boolean | null>;
  timeline: { held_bytes: number; phase: string; row: number | null; role: string; changes: [row: number | null, role: string, bytes: number][] }[];
  /** Bytes by category that were there before the run: in no point of the timeline. */
  memory_before: Record<string, number>;
  findings: { kind: string; text: string; module: string | null; is_alarm: boolean; op: number | null }[];
  notes: string[];
}

export interface ProfileColumn {
  name: string;
  title: string;
  unit: string;
  is_shown: boolean;
  meaning: string;
  method: string;
}

export interface ProfileRow {
  index: number;
  address: string;
  name: string;
  type: string;
  parent: number | null;
  depth: number;
  children: number[];
  num_calls: number;
  is_repeat: boolean;
  ops: { op: number; label: string; name: string; source: string | null; shapes: number[][]; values: Record<string, unknown> }[];
  values: Record<string, unknown>;
}

export function cellText(unit: string, value: unknown): string {
  if (value == null) return "";
  if (unit === "shape") return (value as number[][]).map(shapeText).join(" | ");
  if (unit === "text") return String(value);
  const number = value as number;
  if (unit === "ns") return timeText(number);
  if (unit === "bytes") return bytesText(number);
  if (unit === "FLOP") return shortCount(number);
  if (unit === "FLOP/s") return `${shortCount(number)}FLOP/s`;
  if (unit === "count") return countText(number);
  return unit === "ratio" ? percentText(number) : numberText(number);
}

/** What a flame can be made of: figures of a row that include those of its children. */
const NESTED = ["forward", "backward", "recompute", "flops", "flops_backward", "params", "saved", "ops"];

export function flameColumns(profile: Profile): ProfileColumn[] {
  const known = new Map(profile.columns.map((column) => [column.name, column]));
  return NESTED.flatMap((name) => known.get(name) ?? []);
}

export interface Bar {
  row: number;
  depth: number;
  from: number;
  to: number;
}

/** Bars of a flame from 0 to 1: each row as wide as its share of the one that is looked at, its children under it. */
export function flameBars(profile: Profile, column: string, top: number): Bar[] {
  const bars: Bar[] = [];
  const amount = (row: number) => Math.max(0, Number(profile.rows[row].values[column] ?? 0));
  const whole = amount(top);
  if (!whole) return bars;
  const waiting: Bar[] = [{ row: top, depth: 0, from: 0, to: 1 }];
  while (waiting.length) {
    const bar = waiting.pop()!;
    bars.push(bar);
    const { children } = profile.rows[bar.row];
    // Measured parts can add up to more than the whole by some noise; they are then drawn to fit.
    const sum = children.reduce((total, child) => total + amount(child), 0);
    const scale = (bar.to - bar.from) / Math.max(amount(bar.row), sum, 1e-9);
    let from = bar.from;
    for (const child of children) {
      const to = from + amount(child) * scale;
      if (to - from > 1e-4) waiting.push({ row: child, depth: bar.depth + 1, from, to });
      from = to;
    }
  }
  return bars;
}
