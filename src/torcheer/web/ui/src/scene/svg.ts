/** A scene as SVG: one file, no scripts, no outside fonts. Texts are held to the widths they were measured with. */

import type { Graph } from "./graph";
import { marksOf, type Mark, type PathMark, type RectMark, type TextMark } from "./marks";
import type { Command } from "./outline";
import type { Scene } from "./scene";
import { type ThemeName, THEMES } from "./theme";

export interface SvgOptions {
  theme?: ThemeName;
}

const FONT = "Arimo, Arial, Helvetica, 'Liberation Sans', sans-serif";

export function svg(scene: Scene, graph: Graph, options: SvgOptions = {}): string {
  const [width, height] = [Math.ceil(scene.width), Math.ceil(scene.height)];
  const marks = marksOf({ ...scene, width, height }, graph, THEMES[options.theme ?? "light"]);
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${FONT}" role="img">`,
    `<title>${escape(graph.title)}</title>`,
    ...marks.map(markText),
    "</svg>\n",
  ].join("\n");
}

/** One decimal: a picture of a thousand boxes is so half as long. */
const n = (number: number) => String(Math.round(number * 10) / 10);

function markText(mark: Mark): string {
  if (mark.kind === "rect") return rectText(mark);
  return mark.kind === "path" ? pathText(mark) : wordsText(mark);
}

function rectText({ x, y, width, height, round, fill, stroke }: RectMark): string {
  const at = `x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"`;
  return `<rect ${at}${round ? ` rx="${round}"` : ""} fill="${fill ?? "none"}"${stroke ? ` stroke="${stroke}"` : ""}/>`;
}

function pathText({ paths, fill, stroke, lineWidth, dash }: PathMark): string {
  const closed = fill ? "z" : "";
  const width = lineWidth === 1 ? "" : ` stroke-width="${lineWidth}"`;
  const line = stroke ? ` stroke="${stroke}"${width}${dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : ""}` : "";
  return `<path fill="${fill ?? "none"}"${line} d="${paths.map((path) => path.map(commandText).join("") + closed).join("\n")}"/>`;
}

const commandText = ([name, ...numbers]: Command) => name + (numbers as number[]).map(n).join(" ");

const ANCHORS = { left: "start", middle: "middle", right: "end" };

function wordsText({ bold, size, fill, align, words }: TextMark): string {
  const weight = bold ? ' font-weight="bold"' : "";
  const anchor = align === "left" ? "" : ` text-anchor="${ANCHORS[align]}"`;
  const texts = words.map(({ x, y, text, width }) => {
    const held = `textLength="${n(width)}" lengthAdjust="spacingAndGlyphs"`;
    return `<text x="${n(x)}" y="${n(y)}" ${held}>${escape(text)}</text>`;
  });
  return [`<g font-size="${size}" fill="${fill}"${weight}${anchor}>`, ...texts, "</g>"].join("\n");
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** XML has no control characters and no halves of characters, not even escaped. */
function escape(text: string): string {
  return text
    .replace(/[&<>"]/g, (char) => ESCAPES[char])
    .replace(/[\u0000-\u001f\ufffe\uffff\ud800-\udfff]/gu, " ");
}
