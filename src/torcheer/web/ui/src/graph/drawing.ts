// From data to a laid-out scene: what the worker does, and the page itself where there is no worker.

import { layout, type Memo } from "../layout/layout";
import type { Graph } from "../scene/graph";
import type { HistoryData } from "../scene/data";
import { historyGraph, type HistoryOptions } from "../scene/history_graph";
import { pack } from "./packed";
import type { Asked, Drawn, GraphOptions, Supplied } from "./protocol";
import { startingOpen } from "./starting_open";
import { entered } from "./entered";

interface Kept {
  data: unknown;
  options: string;
  whole: Graph;
  root: string;
  graph: Graph;
  memo: Memo;
}

const kept = new Map<string, Kept>();

export function draw(asked: Asked): Drawn {
  const { graph, memo, whole } = graphOf(asked);
  const ids = asked.open === null ? startingOpen(graph) : asked.open === "all" ? null : new Set(asked.open);
  const isOpen = (item: number) => ids === null || ids.has(graph.items[item].id);
  const scene = layout(graph, isOpen, {}, memo);
  const open = ids === null ? scene.boxes.filter((box) => box.form === "open").map((box) => graph.items[box.item].id) : [...ids];
  return { number: asked.number, graph: asked.wantsGraph ? graph : null, whole: asked.wantsGraph && graph !== whole ? whole : null, scene: pack(scene), open };
}

/** Add tables to data given before; the graph is built anew when it is next asked for. */
export function supply({ name, tables }: Supplied): void {
  const found = kept.get(name);
  if (!found) return;
  found.data = { ...(found.data as object), ...tables };
  found.options = "";
}

function graphOf(asked: Asked): Kept {
  const options = JSON.stringify(asked.options);
  let found = kept.get(asked.name);
  if (asked.data !== undefined || found === undefined || found.options !== options) {
    const data = asked.data ?? found?.data;
    const whole = build(data, asked.options);
    found = { data, options, whole, root: "", graph: whole, memo: new Map() };
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
