/** Colour by a metric: how much of the whole each item takes, or how large it is among its like. */

import type { HistoryData } from "./data";
import type { Draft } from "./history_graph";
import { bytesText, countText, flopsText, secondsText } from "./units";

export type Metric = "time" | "backward" | "memory" | "flops" | "params" | "nan" | "gradient";

interface Measure {
  /** Of one op; null where it is not known. */
  amounts(data: HistoryData): (op: number) => number | null;
  /** Of a box, from what is in it. */
  joined(a: number, b: number): number;
  /** From 0 to 1. */
  heats(amounts: (number | null)[], top: number[]): (amount: number) => number;
  text(amount: number): string;
}

const sum = (a: number, b: number) => a + b;

/** Shares of the whole. Square root, so that a tenth of it is still well seen. */
function shares(amounts: (number | null)[], top: number[]): (amount: number) => number {
  const total = top.reduce((all, at) => all + (amounts[at] ?? 0), 0);
  return (amount) => (total > 0 ? Math.sqrt(amount / total) : 0);
}

/** On a logarithmic scale from the least to the greatest. */
function logarithms(amounts: (number | null)[]): (amount: number) => number {
  let [low, high] = [Infinity, -Infinity];
  for (const amount of amounts) {
    if (!amount) continue;
    low = Math.min(low, Math.log10(amount));
    high = Math.max(high, Math.log10(amount));
  }
  return (amount) => (amount > 0 ? (high > low ? 0.05 + (0.95 * (Math.log10(amount) - low)) / (high - low) : 0.5) : 0);
}

function ofOutputs(data: HistoryData, found: Map<number, number>): (op: number) => number | null {
  return (op) => {
    const known = data.ops.outputs[op].flatMap((value) => found.get(value) ?? []);
    return known.length ? Math.max(...known) : null;
  };
}

const MEASURES: Record<Metric, Measure> = {
  time: { amounts: ({ ops }) => (op) => ops.time_ns[op], joined: sum, heats: shares, text: secondsText },
  backward: { amounts: ({ ops }) => (op) => ops.backward_time_ns[op], joined: sum, heats: shares, text: secondsText },
  memory: {
    amounts: ({ ops, values }) => (op) => ops.outputs[op].reduce((all, value) => all + (values.size_bytes[value] ?? 0), 0),
    joined: sum,
    heats: shares,
    text: bytesText,
  },
  flops: {
    amounts: ({ flops }) => {
      const found = new Map(flops.op.map((op, row) => [op, flops.flops[row]]));
      return (op) => found.get(op) ?? null;
    },
    joined: sum,
    heats: shares,
    text: flopsText,
  },
  params: {
    amounts: ({ ops, params }) => (op) =>
      ops.params[op].reduce((all, param) => all + (params.kind[param] === "param" ? (params.num_elements[param] ?? 0) : 0), 0),
    joined: sum,
    heats: shares,
    text: (amount) => `${countText(amount)} params`,
  },
  nan: {
    amounts: (data) => {
      const { value = [], num_nan = [], num_inf = [] } = data.statistics;
      return ofOutputs(data, new Map(value.map((one, row) => [one!, (num_nan[row] ?? 0) + (num_inf[row] ?? 0)])));
    },
    joined: sum,
    heats: () => (amount) => (amount > 0 ? 1 : 0),
    text: (amount) => `${countText(amount)} NaN or Inf`,
  },
  gradient: {
    amounts: (data) => {
      const { value, norm } = data.gradient_norms;
      return ofOutputs(data, new Map(value.map((one, row) => [one, norm[row]])));
    },
    joined: Math.max,
    heats: logarithms,
    text: (amount) => `gradient norm ${Number(amount.toPrecision(3))}`,
  },
};

/** Set `heat` on items, boxes from what is in them, and say the figure in a line. What is not known has no colour. */
export function heatOf(data: HistoryData, items: Draft[], metric: Metric | "kind"): void {
  if (metric === "kind") return;
  const { amounts, joined, heats, text } = MEASURES[metric];
  const read = amounts(data);
  const join = (a: number | null, b: number | null) => (a === null ? b : b === null ? a : joined(a, b));
  const found = items.map((item) => item.ops.reduce<number | null>((all, op) => join(all, read(op)), null));
  for (let item = items.length - 1; item >= 0; item--) {
    const around = items[item].parent;
    if (around >= 0) found[around] = join(found[around], found[item]);
  }
  const top = items.flatMap(({ parent }, at) => (parent < 0 ? [at] : []));
  const heat = heats(found, top);
  items.forEach((item, at) => {
    const amount = found[at];
    if (item.role === "aten" || amount === null) return;
    item.heat = heat(amount);
    // What is drawn once stands for all: passes of a loop, equal blocks.
    const times = item.role !== "module" && item.ops.length > 1 ? ` in ${item.ops.length}` : "";
    if (amount > 0) item.lines.push(text(amount) + times);
  });
}
