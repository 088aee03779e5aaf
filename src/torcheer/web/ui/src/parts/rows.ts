// A run as tables: a row for each op or module call, with the columns a reader can choose from.

import type { History } from "../data/history";
import { bytesText, countText, numberText, shapeText, timeText } from "../data/text";

export interface Column {
  name: string;
  title: string;
  isNumber: boolean;
  isShown: boolean;
  text(value: unknown): string;
}

export interface Rows {
  columns: Column[];
  count: number;
  value(row: number, column: string): unknown;
  /** Ids of the graph's items that could stand for a row, the best first. */
  ids(row: number): string[];
  noun: string;
}

const plain = (value: unknown) => (value == null ? "" : String(value));
const text = (name: string, title: string, isShown = true): Column => ({ name, title, isNumber: false, isShown, text: plain });
const number = (name: string, title: string, show: (value: number | null) => string, isShown = true): Column => ({
  name,
  title,
  isNumber: true,
  isShown,
  text: (value) => (value == null ? "" : show(value as number)),
});

export function opRows(history: History): Rows {
  const { ops, functions, calls, modules, values, types, params, sites, frames } = history;
  const listed = Array.from({ length: ops.num }, (_, op) => op).filter((op) => ops.owner[op] < 0);
  const first = (op: number) => ops.outputs[op][0] ?? -1;
  const sum = (indices: number[], column: (number | null)[]) => indices.reduce((total, index) => total + (column[index] ?? 0), 0);
  const trained = (indices: number[]) => indices.filter((param) => params.kind[param] === "param");
  const source = (op: number) => (ops.site[op] < 0 ? -1 : sites.source[ops.site[op]]);
  const cells: Record<string, (op: number) => unknown> = {
    label: (op) => ops.label[op],
    function: (op) => functions.function[ops.function[op]],
    module: (op) => modules.address[calls.module[ops.call[op]]],
    type: (op) => modules.type[calls.module[ops.call[op]]],
    shape: (op) => (first(op) < 0 ? "" : shapeText(types.shape[values.type[first(op)]])),
    dtype: (op) => (first(op) < 0 ? "" : types.dtype[values.type[first(op)]]),
    bytes: (op) => sum(ops.outputs[op], values.size_bytes),
    params: (op) => sum(trained(ops.params[op]), params.num_elements),
    time: (op) => ops.time_ns[op],
    backward: (op) => ops.backward_time_ns[op],
    pass: (op) => ops.pass[op],
    arguments: (op) => ops.arguments[op],
    source: (op) => (source(op) < 0 ? "" : `${frames.file[source(op)]}:${frames.line[source(op)]}`),
    ...statisticsCells(history, first),
  };
  const columns = [
    text("label", "Op"),
    text("function", "Function", false),
    text("module", "Module"),
    text("type", "Type", false),
    text("shape", "Shape"),
    text("dtype", "Dtype", false),
    number("bytes", "Output", bytesText),
    number("params", "Params", countText),
    number("time", "Time", timeText),
    number("backward", "Backward", timeText, history.run.num_backward > 0),
    number("pass", "Pass", countText, false),
    text("arguments", "Arguments", false),
    text("source", "Source", false),
    ...(history.statistics.num ? STATISTICS.map(([name, title]) => number(name, title, numberText, false)) : []),
  ];
  return {
    columns,
    count: listed.length,
    value: (row, column) => cells[column](listed[row]),
    ids: (row) => [`op${listed[row]}`, `layer${ops.layer[listed[row]]}`, `call${ops.call[listed[row]]}`],
    noun: "ops",
  };
}

const STATISTICS = [
  ["mean", "Mean"],
  ["std", "Std"],
  ["min", "Min"],
  ["max", "Max"],
  ["num_nan", "NaN"],
  ["num_inf", "Inf"],
  ["num_zero", "Zeros"],
] as const;

function statisticsCells(history: History, first: (op: number) => number): Record<string, (op: number) => unknown> {
  const { statistics } = history;
  if (!statistics.num) return {};
  const rowOf = new Map((statistics.value as number[]).map((value, row) => [value, row]));
  const cell = (name: string) => (op: number) => {
    const row = rowOf.get(first(op));
    const column = (statistics as unknown as Record<string, unknown[] | undefined>)[name];
    return row === undefined ? null : column?.[row];
  };
  return Object.fromEntries(STATISTICS.map(([name]) => [name, cell(name)]));
}

export function moduleRows(history: History): Rows {
  const { calls, modules, params, values, types } = history;
  const ownParams = (call: number) => modules.params[calls.module[call]];
  const output = (call: number) => calls.outputs[call][0]?.[1] ?? -1;
  const cells: Record<string, (call: number) => unknown> = {
    address: (call) => modules.address[calls.module[call]] || history.run.model,
    type: (call) => modules.type[calls.module[call]],
    call: (call) => calls.call_index[call],
    shape: (call) => (output(call) < 0 ? "" : shapeText(types.shape[values.type[output(call)]])),
    params: (call) => ownParams(call).reduce((total, param) => total + (params.kind[param] === "param" ? (params.num_elements[param] ?? 0) : 0), 0),
    ops: (call) => calls.end_op[call] - calls.first_op[call],
    time: (call) => calls.time_ns[call],
    extra: (call) => modules.extra[calls.module[call]],
    training: (call) => (modules.training[calls.module[call]] ? "train" : "eval"),
  };
  return {
    columns: [
      text("address", "Module"),
      text("type", "Type"),
      number("call", "Call", countText),
      text("shape", "Output shape"),
      number("params", "Own params", countText),
      number("ops", "Ops", countText),
      number("time", "Time", timeText),
      text("extra", "Settings", false),
      text("training", "Mode", false),
    ],
    count: calls.num,
    value: (row, column) => cells[column](row),
    ids: (row) => [`call${row}`, `module${calls.module[row]}`, `op${calls.first_op[row]}`],
    noun: "module calls",
  };
}
