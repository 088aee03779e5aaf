// The data of a run, as `views/history.build` writes it, with the fields of the run that the page shows.

import type { HistoryData } from "../scene/data";

export type History = HistoryData & {
  run: { framework: string; framework_version: string; training: boolean; num_backward: number };
};
