// What a run's graph is coloured by at a step: one number for each module call, from 0 to 1.

import type { SeriesFacts } from "./run";

export interface AtStep {
  step: number | null;
  series: number[];
  stats: Record<string, (number | null)[]>;
}

export const HEATS: readonly (readonly [string, string])[] = [
  ["", "Colour: kind"],
  ["output norm", "Colour: output norm"],
  ["output_grad norm", "Colour: gradient norm"],
  ["param_grad norm", "Colour: param gradient norm"],
  ["param update", "Colour: update ratio"],
  ["output dead", "Colour: dead units"],
  ["output nan", "Colour: NaN and Inf"],
];

/** What colours say of a heat: name, least and most. */
export function legendOf(heat: string): readonly [string, string, string] | null {
  if (!heat) return null;
  const name = HEATS.find(([one]) => one === heat)?.[1].replace("Colour: ", "") ?? heat;
  const stat = heat.split(" ")[1];
  return stat === "nan" ? [name, "none", "some"] : stat === "dead" ? [name, "0 %", "100 %"] : [name, "least", "most, logarithmic"];
}

/** What to ask for: the series and statistics that a heat is made of. */
export function wantedFor(heat: string): { kind: string; stats: string } {
  const [kind, stat] = heat.split(" ");
  return { kind, stats: stat === "nan" ? "nan,inf" : stat };
}

let known: { series: readonly SeriesFacts[]; byId: Map<number, SeriesFacts> } | undefined;

/** Made once for a list: a large model has 20,000 series, and steps come every second. */
function byId(series: readonly SeriesFacts[]): Map<number, SeriesFacts> {
  if (known?.series !== series) known = { series, byId: new Map(series.map((one) => [one.id, one])) };
  return known.byId;
}

/** Shares stay shares; norms are put on a logarithmic scale between the least and the greatest. */
export function heatsAt(found: AtStep, series: readonly SeriesFacts[], heat: string): Map<string, number> {
  const [kind, stat] = heat.split(" ");
  const facts = byId(series);
  const amounts = new Map<string, number>();
  found.series.forEach((id, at) => {
    const one = facts.get(id);
    if (!one || one.kind !== kind) return;
    const value = stat === "nan" ? (found.stats.nan[at] ?? 0) + (found.stats.inf[at] ?? 0) : found.stats[stat]?.[at];
    if (value == null) return;
    const key = `${one.module}:${one.call || 1}`;
    amounts.set(key, Math.max(amounts.get(key) ?? 0, value));
  });
  if (stat === "dead") return amounts;
  if (stat === "nan") return new Map([...amounts].map(([key, value]) => [key, value > 0 ? 1 : 0]));
  const logs = [...amounts.values()].filter((value) => value > 0).map(Math.log10);
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  const share = (value: number) => (value > 0 ? (high > low ? (Math.log10(value) - low) / (high - low) : 0.5) : 0);
  return new Map([...amounts].map(([key, value]) => [key, share(value)]));
}
