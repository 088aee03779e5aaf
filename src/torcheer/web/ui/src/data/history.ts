// The data of a run, as `views/history.build` writes it, with the fields of the run that the page shows.

import type { HistoryData } from "../scene/data";

export type History = HistoryData & {
  run: { framework: string; framework_version: string; training: boolean; num_backward: number };
};

/** What the server reads after the first picture; empty tables in the data stand for it until then. */
export type Figures = Pick<History, "statistics" | "gradient_norms" | "flops"> & { reason: string | null };
