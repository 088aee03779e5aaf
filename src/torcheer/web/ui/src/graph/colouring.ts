// What boxes can be coloured by: names as `historyGraph` takes them, and what the reader sees.

import type { History } from "../data/history";

const COLOURINGS = [
  ["", "Colour: kind"],
  ["time", "Colour: time"],
  ["backward", "Colour: backward time"],
  ["memory", "Colour: memory"],
  ["flops", "Colour: FLOPs"],
  ["params", "Colour: params"],
  ["nan", "Colour: NaN and Inf"],
  ["gradient", "Colour: gradient norm"],
] as const;

/** Those that need figures, which come after the first picture. */
export const FROM_FIGURES: readonly string[] = ["flops", "nan", "gradient"];

/** What the colours say: name, least and most. */
export function legendOf(name: string): readonly [string, string, string] | null {
  const title = COLOURINGS.find(([one]) => one === name)?.[1].replace("Colour: ", "");
  if (!name || !title) return null;
  return name === "nan" ? [title, "none", "some"] : name === "gradient" ? [title, "least", "most, logarithmic"] : [`share of ${title}`, "0 %", "100 %"];
}

/** Those that say something about a run. */
export function colouringsOf(history: History): readonly (readonly [string, string])[] {
  const missing = new Set<string>();
  if (!history.run.num_backward) missing.add("backward").add("gradient");
  if (!history.aten.num) missing.add("flops");
  return COLOURINGS.filter(([name]) => !missing.has(name));
}
