// From data to a laid-out scene: what the worker does, and the page itself where there is no worker.

import { layout, type Memo } from "../layout/layout";
import type { Graph } from "../scene/graph";
import type { HistoryData } from "../scene/data";
import { historyGraph, type HistoryOptions } from "../scene/history_graph";
import { pack } from "./packed";
import type { Asked, Drawn, GraphOptions, Supplied } from "./protocol";
import type { Scene } from "../scene/scene";
import { startingOpen } from "./starting_open";
import { entered } from "./entered";

interface Kept {
  data: unknown;
  /** As text, to be compared. */
  options: string;
  /** Tables were added since the graph was built. */
  isStale: boolean;
  whole: Graph;
  root: string;
  graph: Graph;
  memo: Memo;
  /** Items that were open in the last drawing; null: all. */
  open: ReadonlySet<string> | null;
}

const kept = new Map<string, Kept>();

export function draw(asked: Asked): Drawn {
  const found = graphOf(asked);
  const { graph, whole } = found;
  const ids = asked.open === null ? startingOpen(graph) : asked.open === "all" ? null : new Set(asked.open);
  found.open = ids;
  const scene = sceneOf(found);
  const open = ids === null ? scene.boxes.filter((box) => box.form === "open").map((box) => graph.items[box.item].id) : [...ids];
  return { number: asked.number, graph: asked.wantsGraph ? graph : null, whole: asked.wantsGraph && graph !== whole ? whole : null, scene: pack(scene), open };
}

/** Build the graphs anew to which tables were added: else the reader would wait for it at the next click. */
export function refresh(): void {
  for (const [name, { options, root }] of kept) graphOf({ name, options: JSON.parse(options), root });
}

/** Lay out again what is shown: code that has run once is slow still. */
export function warm(): void {
  for (const each of kept.values()) if (!each.isStale) pack(sceneOf(each));
}

function sceneOf({ graph, memo, open }: Kept): Scene {
  return layout(graph, (item) => open === null || open.has(graph.items[item].id), {}, memo);
}

/** Add tables to data given before; the graph is built anew when it is next asked for. */
export function supply({ name, tables }: Supplied): void {
  const found = kept.get(name);
  if (!found) return;
  found.data = { ...(found.data as object), ...tables };
  found.isStale = true;
}

function graphOf(asked: Pick<Asked, "name" | "options" | "root" | "data">): Kept {
  const options = JSON.stringify(asked.options);
  let found = kept.get(asked.name);
  if (asked.data !== undefined || found === undefined || found.isStale || found.options !== options) {
    const data = asked.data ?? found?.data;
    const whole = build(data, asked.options);
    found = { data, options, isStale: false, whole, root: "", graph: whole, memo: new Map(), open: found?.open ?? new Set() };
    kept.set(asked.name, found);
  }
  if (found.root !== asked.root) {
    found.root = asked.root;
    found.graph = entered(found.whole, asked.root);
  }
  return found;
}

/** Data of a history, or a graph that was built elsewhere. */
function build(data: unknown, options: GraphOptions): Graph {
  const some = data as Graph;
  return Array.isArray(some.items) ? some : historyGraph(data as HistoryData, { ...options, colourBy: options.colourBy || "kind" } as HistoryOptions);
}
