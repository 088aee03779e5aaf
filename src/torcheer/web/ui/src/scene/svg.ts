/** A scene as SVG: one file, no scripts, no outside fonts. Texts are held to the widths they were measured with. */

import type { EdgeKind, Graph } from "./graph";
import { arrowOf, outline } from "./outline";
import { type Box, HEADER, type Route, type Scene, type Text } from "./scene";
import { heatColour, type Look, type Theme, type ThemeName, THEMES } from "./theme";

export interface SvgOptions {
  theme?: ThemeName;
}

const FONT = "Arimo, Arial, Helvetica, 'Liberation Sans', sans-serif";
const ROUND = 5;

export function svg(scene: Scene, graph: Graph, options: SvgOptions = {}): string {
  const theme = THEMES[options.theme ?? "light"];
  const [width, height] = [Math.ceil(scene.width), Math.ceil(scene.height)];
  const open = scene.boxes.filter((box) => box.form === "open");
  const nodes = scene.boxes.filter((box) => box.form !== "open");
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
    ` font-family="${FONT}" role="img"><title>${escape(graph.title)}</title>`,
    `<rect width="${width}" height="${height}" fill="${theme.background}"/>`,
    ...open.map((box) => rect(box, theme.open[box.depth % theme.open.length], theme.openBorder)),
    ...routesOf(scene, theme),
    ...open.map((box) => header(box, theme)),
    ...nodesOf(nodes, graph, theme),
    ...textsOf(scene.boxes, theme),
    "</svg>",
  ].join("\n");
}

/** Few decimals: a picture of a thousand boxes is half as long. */
const n = (number: number) => String(Math.round(number * 10) / 10);

function rect(box: Box, fill: string, border: string): string {
  const at = `x="${n(box.x)}" y="${n(box.y)}" width="${n(box.width)}" height="${n(box.height)}"`;
  return `<rect ${at} rx="${ROUND}" fill="${fill}" stroke="${border}"/>`;
}

function header(box: Box, theme: Theme): string {
  const [x, y, width] = [box.x, box.y, box.width].map((number) => Math.round(number * 10) / 10);
  const d = `M${n(x)} ${n(y + HEADER)}v${n(ROUND - HEADER)}q0 -${ROUND} ${ROUND} -${ROUND}h${n(width - 2 * ROUND)}`;
  const fill = box.depth >= 0 ? theme.header : "none";
  return `<path d="${d}q${ROUND} 0 ${ROUND} ${ROUND}v${n(HEADER - ROUND)}z" fill="${fill}" stroke="${theme.openBorder}"/>`;
}

function routesOf(scene: Scene, theme: Theme): string[] {
  return (["tensor", "memory", "gradient"] as EdgeKind[]).flatMap((kind) => {
    const routes = scene.routes.filter((route) => route.kind === kind);
    if (!routes.length) return [];
    const colour = theme.edges[kind];
    const dashes = kind === "tensor" ? "" : kind === "memory" ? ' stroke-dasharray="5 3"' : ' stroke-dasharray="2 2"';
    const heads = routes.map((route) => arrowHead(route, scene)).join("");
    return [
      `<g fill="none" stroke="${colour}" stroke-width="1.2"${dashes}>`,
      ...routes.map((route) => `<path d="${curve(route, scene)}"/>`),
      `</g><path fill="${colour}" d="${heads}"/>`,
    ];
  });
}

function curve(route: Route, scene: Scene): string {
  return outline(route, scene.direction)
    .map(([name, ...numbers]) => name + numbers.map(n).join(" "))
    .join("");
}

function arrowHead(route: Route, scene: Scene): string {
  const { x, y, dx, dy } = arrowOf(route, scene.direction);
  const corner = (side: number) => `${n(x - 6 * dx + side * 3 * dy)} ${n(y - 6 * dy - side * 3 * dx)}`;
  return `M${n(x)} ${n(y)}L${corner(1)}L${corner(-1)}z`;
}

function nodesOf(boxes: Box[], graph: Graph, theme: Theme): string[] {
  return boxes.map((box) => {
    const item = graph.items[box.item];
    const look: Look = theme.roles[item.role];
    const fill = item.heat >= 0 && item.role !== "aten" ? heatColour(theme, item.heat) : look.fill;
    const behind = item.count > 1 ? rect({ ...box, x: box.x + 3, y: box.y + 3 }, fill, look.border) : "";
    const inner = { ...box, x: box.x + 2.5, y: box.y + 2.5, width: box.width - 5, height: box.height - 5 };
    // A second border says that there is more inside.
    const closed = box.form === "closed" ? rect(inner, "none", look.border) : "";
    return behind + rect(box, fill, look.border) + closed;
  });
}

const ANCHORS = { left: "start", middle: "middle", right: "end" };

/** Texts of one look in a group, which says it once. */
function textsOf(boxes: Box[], theme: Theme): string[] {
  const groups = new Map<string, string[]>();
  for (const box of boxes)
    for (const text of box.texts) {
      const weight = text.bold ? ' font-weight="bold"' : "";
      const anchor = text.align === "left" ? "" : ` text-anchor="${ANCHORS[text.align]}"`;
      const look = `<g font-size="${text.size}" fill="${theme.texts[text.role]}"${weight}${anchor}>`;
      const group = groups.get(look);
      if (group) group.push(word(box, text));
      else groups.set(look, [word(box, text)]);
    }
  return [...groups].flatMap(([look, words]) => [look, ...words, "</g>"]);
}

function word(box: Box, text: Text): string {
  const at = `x="${n(box.x + text.x)}" y="${n(box.y + text.y)}"`;
  return `<text ${at} textLength="${n(text.width)}" lengthAdjust="spacingAndGlyphs">${escape(text.text)}</text>`;
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** XML has no control characters and no halves of characters, not even escaped. */
function escape(text: string): string {
  return text.replace(/[&<>"]/g, (char) => ESCAPES[char]).replace(/[\u0000-\u001f\ufffe\uffff\ud800-\udfff]/gu, " ");
}
