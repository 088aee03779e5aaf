/** A scene as the marks to be made, in order: what SVG and PDF are written from. */

import type { EdgeKind, Graph } from "./graph";
import { arrowOf, type Command, outline } from "./outline";
import { type Box, HEADER, type Scene, type Text } from "./scene";
import { heatColour, type Theme } from "./theme";

export interface RectMark {
  kind: "rect";
  x: number;
  y: number;
  width: number;
  height: number;
  round: number;
  /** Colours; null: none. */
  fill: string | null;
  stroke: string | null;
}

export interface PathMark {
  kind: "path";
  /** Several paths of one look. */
  paths: Command[][];
  fill: string | null;
  stroke: string | null;
  lineWidth: number;
  dash: number[];
}

export interface TextMark {
  kind: "text";
  bold: boolean;
  size: number;
  fill: string;
  align: Text["align"];
  /** Texts of one look: where, what, how wide. */
  words: { x: number; y: number; text: string; width: number }[];
}

export type Mark = RectMark | PathMark | TextMark;

const ROUND = 5;
const DASHES: Record<EdgeKind, number[]> = { tensor: [], memory: [5, 3], gradient: [2, 2] };
const HEAD_LENGTH = 6;
const HEAD_HALF = 3;
/** How far the shadow of what stands for several lies behind it. */
const BEHIND = 3;

export function marksOf(scene: Scene, graph: Graph, theme: Theme): Mark[] {
  const open = scene.boxes.filter((box) => box.form === "open");
  const nodes = scene.boxes.filter((box) => box.form !== "open");
  return [
    { ...rect({ x: 0, y: 0, width: scene.width, height: scene.height }, theme.background, null), round: 0 },
    ...open.map((box) => rect(box, theme.open[box.depth % theme.open.length], theme.openBorder)),
    ...routeMarks(scene, theme),
    ...open.map((box) => headerMark(box, theme)),
    ...nodes.flatMap((box) => nodeMarks(box, graph, theme)),
    ...textMarks(scene.boxes, theme),
  ];
}

type Place = Pick<Box, "x" | "y" | "width" | "height">;

function rect({ x, y, width, height }: Place, fill: string | null, stroke: string | null): RectMark {
  return { kind: "rect", x, y, width, height, round: ROUND, fill, stroke };
}

function nodeMarks(box: Box, graph: Graph, theme: Theme): Mark[] {
  const item = graph.items[box.item];
  const look = theme.roles[item.role];
  const fill = item.heat >= 0 ? heatColour(theme, item.heat) : look.fill;
  const marks = [rect(box, fill, look.border)];
  if (item.count > 1) marks.unshift(rect({ ...box, x: box.x + BEHIND, y: box.y + BEHIND }, fill, look.border));
  if (box.form === "closed") {
    // A second border says that there is more inside.
    const inner = { x: box.x + 2.5, y: box.y + 2.5, width: box.width - 5, height: box.height - 5 };
    marks.push(rect(inner, null, look.border));
  }
  return marks;
}

/** The band with the name of an open box: round at the top only. */
function headerMark({ x, y, width }: Box, theme: Theme): PathMark {
  const [right, bottom] = [x + width, y + HEADER];
  const path: Command[] = [
    ["M", x, bottom], ["L", x, y + ROUND], ["C", x, y, x, y, x + ROUND, y],
    ["L", right - ROUND, y], ["C", right, y, right, y, right, y + ROUND], ["L", right, bottom], ["L", x, bottom],
  ];
  return { kind: "path", paths: [path], fill: theme.header, stroke: theme.openBorder, lineWidth: 1, dash: [] };
}

function routeMarks(scene: Scene, theme: Theme): PathMark[] {
  return (["tensor", "memory", "gradient"] as const).flatMap((kind) => {
    const routes = scene.routes.filter((route) => route.kind === kind);
    if (!routes.length) return [];
    const colour = theme.edges[kind];
    const look = { kind: "path" as const, lineWidth: 1.2 };
    const lines = routes.map((route) => outline(route, scene.direction));
    const heads = routes.map((route): Command[] => {
      const { x, y, dx, dy } = arrowOf(route, scene.direction);
      const [backX, backY] = [x - HEAD_LENGTH * dx, y - HEAD_LENGTH * dy];
      const [sideX, sideY] = [HEAD_HALF * dy, -HEAD_HALF * dx];
      return [["M", x, y], ["L", backX + sideX, backY + sideY], ["L", backX - sideX, backY - sideY]];
    });
    return [
      { ...look, paths: lines, fill: null, stroke: colour, dash: DASHES[kind] },
      { ...look, paths: heads, fill: colour, stroke: null, dash: [] },
    ];
  });
}

/** Texts of one look together, so that it is said once. */
function textMarks(boxes: Box[], theme: Theme): TextMark[] {
  const looks = new Map<string, TextMark>();
  for (const box of boxes)
    for (const { x, y, text, size, bold, align, role, width } of box.texts) {
      const key = `${role} ${size} ${bold} ${align}`;
      let mark = looks.get(key);
      if (!mark) looks.set(key, (mark = { kind: "text", bold, size, fill: theme.texts[role], align, words: [] }));
      mark.words.push({ x: box.x + x, y: box.y + y, text, width });
    }
  return [...looks.values()];
}
