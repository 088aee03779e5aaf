/** The data of a run, as `views/history.build` makes it; docs/design/pictures.md describes every column. */

interface Table {
  num: number;
}

export interface HistoryData {
  schema: string;
  run: { model: string; error: string | null; time_ns: number | null; [field: string]: unknown };
  functions: Table & { name: string[]; function: string[] };
  types: Table & { shape: number[][]; dtype: string[]; device: string[] };
  ops: Table & {
    kind: ("input" | "op" | "output")[];
    label: string[];
    function: number[];
    call: number[];
    layer: number[];
    pass: number[];
    owner: number[];
    outputs: number[][];
    params: number[][];
    site: number[];
    start_ns: (number | null)[];
    time_ns: (number | null)[];
    backward_time_ns: (number | null)[];
    arguments: string[];
    writes: number[];
  };
  edges: EdgeTable;
  aten: Table & {
    function: number[];
    owner: number[];
    call: number[];
    phase: ("forward" | "backward" | "recompute")[];
    outputs: number[][];
    time_ns: (number | null)[];
    node: string[];
  };
  aten_edges: EdgeTable;
  layers: Table & { label: string[]; ops: number[][] };
  modules: Table & {
    address: string[];
    type: string[];
    qualified_type: string[];
    parent: number[];
    params: number[][];
    extra: string[];
    training: boolean[];
    aliases: string[][];
  };
  calls: Table & {
    module: number[];
    call_index: number[];
    parent: number[];
    first_op: number[];
    end_op: number[];
    inputs: [string, number][][];
    outputs: [string, number][][];
    start_ns: (number | null)[];
    time_ns: (number | null)[];
    site: number[];
    error: (string | null)[];
  };
  values: Table & {
    kind: string[];
    type: number[];
    producer: number[];
    param: number[];
    size_bytes: (number | null)[];
    requires_grad: number[];
    saved: number[];
    grad_function: (string | null)[];
  };
  params: Table & {
    address: string[];
    kind: ("param" | "buffer")[];
    shape: number[][];
    dtype: string[];
    num_elements: (number | null)[];
    size_bytes: (number | null)[];
    requires_grad: boolean[];
    aliases: string[][];
  };
  frames: Table & { file: string[]; line: number[]; function: string[]; text: string[] };
  sites: Table & { frames: number[][]; source: number[] };
  gradients: Table & { backward: number[]; value: number[]; param: number[] };
  statistics: Table & Partial<Record<StatisticsColumn, (number | null)[]>> & { histogram?: (number[] | null)[] };
  /** These three are empty until they are asked for: they take a moment to have. */
  gradient_norms: Table & { value: number[]; norm: number[]; num_nan: number[]; num_inf: number[] };
  flops: Table & { op: number[]; flops: number[] };
  diagnostics: Table & { code: string[]; message: string[]; op: number[]; module: number[] };
}

export type StatisticsColumn =
  | "value"
  | "mean"
  | "std"
  | "min"
  | "max"
  | "num_elements"
  | "num_nan"
  | "num_inf"
  | "num_zero";

export interface EdgeTable extends Table {
  from: number[];
  to: number[];
  value: number[];
  memory: number[];
  argument: string[];
}
