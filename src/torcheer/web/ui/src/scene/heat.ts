/** Colour by a metric: how much of the whole each item takes. */

import type { HistoryData } from "./data";
import type { Draft } from "./history_graph";
import { bytesText, countText, secondsText } from "./units";

export type Metric = "time" | "memory" | "params" | "backward";

/** Square root, so that a tenth of the whole is still well seen. */
const heat = (share: number) => Math.sqrt(share);

/** Set `heat` on items, boxes with the sum of what is in them, and say the figure in a line. */
export function heatOf(data: HistoryData, items: Draft[], metric: Metric | "kind"): void {
  if (metric === "kind") return;
  const amounts = items.map((item) => item.ops.reduce((sum, op) => sum + amountOf(data, op, metric), 0));
  for (let item = items.length - 1; item >= 0; item--) {
    const around = items[item].parent;
    if (around >= 0) amounts[around] += amounts[item];
  }
  const total = items.reduce((sum, item, at) => (item.parent < 0 ? sum + amounts[at] : sum), 0);
  items.forEach((item, at) => {
    if (item.role === "aten") return;
    item.heat = total > 0 ? heat(amounts[at] / total) : 0;
    if (amounts[at] > 0) item.lines.push(amountText(amounts[at], metric));
  });
}

function amountOf(data: HistoryData, op: number, metric: Metric): number {
  const { ops, params, values } = data;
  if (metric === "time") return ops.time_ns[op] ?? 0;
  if (metric === "backward") return ops.backward_time_ns[op] ?? 0;
  if (metric === "memory") return ops.outputs[op].reduce((sum, value) => sum + (values.size_bytes[value] ?? 0), 0);
  const trained = ops.params[op].filter((param) => params.kind[param] === "param");
  return trained.reduce((sum, param) => sum + (params.num_elements[param] ?? 0), 0);
}

function amountText(amount: number, metric: Metric): string {
  if (metric === "memory") return bytesText(amount);
  return metric === "params" ? `${countText(amount)} params` : secondsText(amount);
}
