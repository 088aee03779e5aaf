/** What Python calls in its embedded engine. Texts go in and out: that is the quickest way between the two. */

import { layout, Layouter, type LayoutOptions } from "../layout/layout";
import type { HistoryData } from "./data";
import type { Graph } from "./graph";
import { historyGraph, type HistoryOptions } from "./history_graph";
import { marksOf } from "./marks";
import { unpack } from "./packed";
import type { Scene } from "./scene";
import { svg, type SvgOptions } from "./svg";
import { THEMES } from "./theme";

export interface DrawOptions extends HistoryOptions, LayoutOptions, SvgOptions {
  /** How many boxes deep to open modules; null: all of them. */
  depth?: number | null;
  /** Open modules only as deep as leaves no more boxes than this. */
  mostBoxes?: number;
}

/** Data and options as JSON; the picture as SVG. */
export function drawSvg(data: string, options: string): string {
  const wanted: DrawOptions = JSON.parse(options);
  const { graph, scene } = picture(JSON.parse(data), wanted);
  return svg(scene, graph, wanted);
}

/** Data and options as JSON; the marks of the picture as JSON, for other kinds of files. */
export function drawMarks(data: string, options: string): string {
  const wanted: DrawOptions = JSON.parse(options);
  const { graph, scene } = picture(JSON.parse(data), wanted);
  const marks = marksOf(scene, graph, THEMES[wanted.theme ?? "light"]);
  return JSON.stringify({ title: graph.title, width: scene.width, height: scene.height, marks });
}

/** Data and options as JSON; the scene and its graph as JSON. */
export function drawScene(data: string, options: string): string {
  return JSON.stringify(picture(JSON.parse(data), JSON.parse(options)));
}

/** A graph as JSON, laid out with everything open to a depth: what tests of the layout call. */
export function layoutGraph(graph: string, options: string): string {
  const wanted: DrawOptions = JSON.parse(options);
  return JSON.stringify(open(JSON.parse(graph), wanted));
}

/** A graph as JSON, laid out again for each choice of open items: how one comes from another is not to be seen. */
export function layoutGraphAgain(graph: string, choices: string): string {
  const given: Graph = JSON.parse(graph);
  const layouter = new Layouter(given);
  const scenes = (JSON.parse(choices) as number[][]).map((open) => unpack(layouter.layout((item) => open.includes(item)), given));
  return JSON.stringify(scenes);
}

function picture(data: HistoryData, options: DrawOptions): { graph: Graph; scene: Scene } {
  const graph = historyGraph(data, options);
  return { graph, scene: open(graph, options) };
}

function open(graph: Graph, options: DrawOptions): Scene {
  const depth: number[] = [];
  for (const { parent } of graph.items) depth.push(parent < 0 ? 0 : depth[parent] + 1);
  let most = options.depth ?? Infinity;
  if (options.mostBoxes !== undefined) {
    const deepest = Math.min(most, Math.max(0, ...depth));
    most = deepest;
    while (most > 0 && depth.filter((own) => own <= most).length > options.mostBoxes) most--;
  }
  return layout(graph, (item) => depth[item] < most, options);
}
