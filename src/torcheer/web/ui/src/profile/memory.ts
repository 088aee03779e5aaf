// Who holds the memory over a run: layers of the timeline by module or by category, bottom first. And which modules have a
// colour of their own, which flame and timeline share.

import type { Profile } from "./report";

const MOST_GROUPS = 24; // more hues than that cannot be told apart
const REST = -1;

export interface Layer {
  name: string;
  /** The row of a module; -1 where it stands for none. */
  row: number;
  /** [light, dark] */
  colours: [string, string];
  /** Bytes at each point of the timeline. */
  bytes: Float64Array;
  most: number;
}

const CATEGORIES: [string, string, [string, string]][] = [
  ["param", "params", ["#8c97a8", "#6b7789"]],
  ["buffer", "buffers", ["#b9c0cb", "#4a5361"]],
  ["input", "inputs", ["#8fbf6b", "#5f8a42"]],
  ["activation", "activations", ["#5a8fd6", "#4377bd"]],
  ["output", "outputs", ["#3fa9a4", "#2f8580"]],
  ["gradient", "gradients", ["#d98a4a", "#b8702f"]],
  ["temporary", "temporaries", ["#e3c04d", "#a88a28"]],
  ["optimizer", "optimizer state", ["#a77bcb", "#84599f"]],
];
const NO_MODULE: [string, string] = ["#9aa3b0", "#646f7e"];

/** Rows with a colour of their own. The one that took the most is split into its children until there are many. */
export function groupsOf(profile: Profile): number[] {
  const { rows } = profile;
  if (!rows.length) return [];
  const weights = weightsOf(profile);
  const chosen = new Set([0]);
  while (chosen.size <= MOST_GROUPS / 3) {
    const next = [...chosen]
      .filter((row) => rows[row].children.some((child) => !chosen.has(child)) && chosen.size + rows[row].children.length <= MOST_GROUPS + 1)
      .sort((a, b) => weights[b] - weights[a] || a - b)[0];
    if (next === undefined) break;
    for (const child of rows[next].children) chosen.add(child);
  }
  return [...chosen].sort((a, b) => a - b);
}

/** What rows took, with all in them; where memory was not measured, how many rows are in them. */
function weightsOf({ rows, timeline }: Profile): number[] {
  const weights = rows.map(() => (timeline.length ? 0 : 1));
  for (const { changes } of timeline) for (const [row, , bytes] of changes) if (row !== null && bytes > 0) weights[row] += bytes;
  for (let row = rows.length - 1; row > 0; row--) weights[rows[row].parent ?? 0] += weights[row];
  return weights;
}

/** The group of each row: itself, or the nearest around it. */
export function groupOfRows({ rows }: Profile, groups: readonly number[]): number[] {
  const chosen = new Set(groups);
  const found: number[] = [];
  for (const { index, parent } of rows) found.push(chosen.has(index) || parent === null ? index : found[parent]);
  return found;
}

/** The hue of each group: neighbours lie far apart on the wheel. */
export const hueOf = (place: number): number => Math.round(215 + place * 137.508) % 360;

export function layersByModule(profile: Profile): Layer[] {
  const groups = groupsOf(profile);
  const groupOf = groupOfRows(profile, groups);
  const found = layersOf(profile, (row) => (row === null ? REST : groupOf[row]));
  return [REST, ...groups].flatMap((row, at) => {
    const bytes = found.get(row);
    if (!bytes) return [];
    const hue = hueOf(at - 1);
    const colours: [string, string] = row === REST ? NO_MODULE : [`hsl(${hue} 48% 64%)`, `hsl(${hue} 36% 46%)`];
    return layer(row === REST ? "no module" : profile.rows[row].address || profile.model, row, colours, bytes);
  });
}

/** By category, on top of what was there before: params, buffers and inputs. */
export function layersByCategory(profile: Profile): Layer[] {
  const found = layersOf(profile, (_, role) => role);
  for (const [role, size] of Object.entries(profile.memory_before)) {
    const bytes = found.get(role) ?? new Float64Array(profile.timeline.length);
    found.set(role, bytes.map((each) => each + size));
  }
  const known = new Set(CATEGORIES.map(([role]) => role));
  const others = [...found.keys()].filter((role) => !known.has(role)).map((role): [string, string, [string, string]] => [role, role, NO_MODULE]);
  return [...CATEGORIES, ...others].flatMap(([role, name, colours]) => {
    const bytes = found.get(role);
    return bytes ? layer(name, -1, colours, bytes) : [];
  });
}

function layer(name: string, row: number, colours: [string, string], bytes: Float64Array): Layer[] {
  const most = bytes.reduce((highest, each) => Math.max(highest, each), 0);
  return most > 0 ? [{ name, row, colours, bytes, most }] : [];
}

function layersOf<K>({ timeline }: Profile, keyOf: (row: number | null, role: string) => K): Map<K, Float64Array> {
  const found = new Map<K, Float64Array>();
  const held = new Map<K, number>();
  timeline.forEach(({ changes }, at) => {
    for (const [row, role, bytes] of changes) {
      const key = keyOf(row, role);
      held.set(key, (held.get(key) ?? 0) + bytes);
      if (!found.has(key)) found.set(key, new Float64Array(timeline.length));
    }
    for (const [key, bytes] of held) found.get(key)![at] = bytes;
  });
  return found;
}
