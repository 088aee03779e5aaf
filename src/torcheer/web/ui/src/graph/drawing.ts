// From data to a laid-out scene: what the worker does, and the page itself where there is no worker.

import { Layouter, type Memo } from "../layout/layout";
import type { Graph } from "../scene/graph";
import type { HistoryData } from "../scene/data";
import { historyGraph, type HistoryOptions } from "../scene/history_graph";
import { BOX, FORMS, type Packed } from "../scene/packed";
import type { Asked, Drawn, GraphOptions, Supplied } from "./protocol";
import { startingOpen } from "./starting_open";
import { entered } from "./entered";

interface Kept {
  data: unknown;
  /** As text, to be compared. */
  options: string;
  whole: Graph;
  root: string;
  graph: Graph;
  memo: Memo;
  layouter: Layouter;
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
  const open = ids === null ? openIn(scene).map((item) => graph.items[item].id) : [...ids];
  return { number: asked.number, graph: asked.wantsGraph ? graph : null, whole: asked.wantsGraph && graph !== whole ? whole : null, scene, open };
}

/** Close something and open it again: code that has run once is slow still. */
export function warm(): void {
  for (const each of kept.values()) {
    const [first] = openIn(sceneOf(each));
    if (first === undefined) continue;
    each.layouter.layout((item) => item !== first && isOpen(each, item));
    sceneOf(each);
  }
}

const isOpen = ({ open, graph }: Kept, item: number) => open === null || open.has(graph.items[item].id);

function sceneOf(each: Kept): Packed {
  return each.layouter.layout((item) => isOpen(each, item));
}

function openIn({ boxes }: Packed): number[] {
  const found: number[] = [];
  for (let at = 0; at < boxes.length; at += BOX) if (FORMS[boxes[at + 7]] === "open") found.push(boxes[at]);
  return found;
}

/** Add tables to data given before. Where the graph shows them, it is built anew when it is next asked for. */
export function supply({ name, tables, isDrawn }: Supplied): void {
  const found = kept.get(name);
  if (!found) return;
  found.data = { ...(found.data as object), ...tables };
  if (isDrawn) found.options = "";
}

function graphOf(asked: Pick<Asked, "name" | "options" | "root" | "data">): Kept {
  const options = JSON.stringify(asked.options);
  let found = kept.get(asked.name);
  if (asked.data !== undefined || found === undefined || found.options !== options) {
    const data = asked.data === undefined ? found?.data : read(asked.data);
    const whole = build(data, asked.options);
    const memo: Memo = new Map();
    found = { data, options, whole, root: "", graph: whole, memo, layouter: new Layouter(whole, {}, memo), open: found?.open ?? new Set() };
    kept.set(asked.name, found);
  }
  if (found.root !== asked.root) {
    found.root = asked.root;
    found.graph = entered(found.whole, asked.root);
    found.layouter = new Layouter(found.graph, {}, found.memo);
  }
  return found;
}

/** Data as it was given: bytes are JSON, which the worker reads while the page does. */
const read = (data: unknown): unknown => (data instanceof ArrayBuffer ? JSON.parse(new TextDecoder().decode(data)) : data);

/** Data of a history, or a graph that was built elsewhere. */
function build(data: unknown, options: GraphOptions): Graph {
  const some = data as Graph;
  return Array.isArray(some.items) ? some : historyGraph(data as HistoryData, { ...options, colourBy: options.colourBy || "kind" } as HistoryOptions);
}
