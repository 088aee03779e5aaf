/** What Python calls in its embedded engine. Texts go in and out: that is the quickest way between the two. */

import { layout, type LayoutOptions } from "../layout/layout";
import type { HistoryData } from "./data";
import type { Graph } from "./graph";
import { historyGraph, type HistoryOptions } from "./history_graph";
import type { Scene } from "./scene";
import { svg, type SvgOptions } from "./svg";
import { THEMES } from "./theme";

export interface DrawOptions extends HistoryOptions, LayoutOptions, SvgOptions {
  /** How many boxes deep to open modules; null: all of them. */
  depth?: number | null;
}

/** Data and options as JSON; the picture as SVG. */
export function drawSvg(data: string, options: string): string {
  const wanted: DrawOptions = JSON.parse(options);
  const { graph, scene } = picture(JSON.parse(data), wanted);
  return svg(scene, graph, wanted);
}

/** Data and options as JSON; the scene with its graph and colours as JSON, for other kinds of files. */
export function drawScene(data: string, options: string): string {
  const wanted: DrawOptions = JSON.parse(options);
  return JSON.stringify({ ...picture(JSON.parse(data), wanted), theme: THEMES[wanted.theme ?? "light"] });
}

function picture(data: HistoryData, options: DrawOptions): { graph: Graph; scene: Scene } {
  const graph = historyGraph(data, options);
  const depth = depths(graph);
  const most = options.depth ?? Infinity;
  return { graph, scene: layout(graph, (item) => depth[item] < most, options) };
}

function depths(graph: Graph): number[] {
  const depth: number[] = [];
  for (const { parent } of graph.items) depth.push(parent < 0 ? 0 : depth[parent] + 1);
  return depth;
}
