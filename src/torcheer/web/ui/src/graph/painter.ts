// Draws a scene on a canvas. What would be too small to see is left out, so a frame costs what is on the screen.

import type { Graph, Role } from "../scene/graph";
import { arrowOf, outline } from "../scene/outline";
import { heatColour, THEMES, type Theme } from "../scene/theme";
import { MARKS, type MarkColours } from "./colours";
import { HEADER, type Box, type Text } from "../scene/scene";
import type { Camera, Size } from "./camera";
import type { IndexedScene } from "./indexed";

/** What stands out. Boxes and routes by index. */
export interface Marks {
  selected: number;
  hovered: number;
  inflows: number[];
  outflows: number[];
  found: Set<number>;
  /** Colours by item id that tie boxes to something beside the graph. */
  tints: Map<string, string>;
  /** How much of something boxes have, 0 to 1 by item id; null: as the graph says. */
  heats: Map<string, number> | null;
  /** Roles by item id in place of those the graph has. */
  looks: Map<string, Role>;
}

export const NO_MARKS: Marks = { selected: -1, hovered: -1, inflows: [], outflows: [], found: new Set(), tints: new Map(), heats: null, looks: new Map() };

const LEAST_TEXT = 5; // pixels
const LEAST_INSIDE = 9; // pixels: a box smaller than this is drawn without what is in it
const LEAST_WIDTH = 3; // pixels
const LEAST_BORDER = 4; // pixels
const LEAST_ROUTE = 3; // pixels
const LEAST_ROUND = 14; // pixels: smaller boxes get square corners
const MOST_ROUTES = 6000;
const MOST_CURVES = 1500;
const FONT = '"Helvetica Neue", Helvetica, Arial, sans-serif';

export function paint(
  context: CanvasRenderingContext2D,
  indexed: IndexedScene,
  graph: Graph,
  camera: Camera,
  screen: Size,
  isDark: boolean,
  marks: Marks,
): void {
  const theme = THEMES[isDark ? "dark" : "light"];
  const ratio = window.devicePixelRatio || 1;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = theme.background;
  context.fillRect(0, 0, screen.width * ratio, screen.height * ratio);
  const scale = camera.zoom * ratio;
  context.setTransform(scale, 0, 0, scale, -camera.x * scale, -camera.y * scale);
  const painter = new Painter(context, indexed, graph, camera, screen, theme, MARKS[isDark ? "dark" : "light"], marks);
  painter.paint();
}

class Painter {
  private readonly left: number;
  private readonly top: number;
  private readonly right: number;
  private readonly bottom: number;
  private readonly visible: number[] = [];
  private readonly pixel: number;

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly indexed: IndexedScene,
    private readonly graph: Graph,
    private readonly camera: Camera,
    screen: Size,
    private readonly theme: Theme,
    private readonly colours: MarkColours,
    private readonly marks: Marks,
  ) {
    this.left = camera.x;
    this.top = camera.y;
    this.right = camera.x + screen.width / camera.zoom;
    this.bottom = camera.y + screen.height / camera.zoom;
    this.pixel = 1 / camera.zoom;
  }

  paint(): void {
    this.findVisible();
    const open = this.visible.filter((index) => this.box(index).form === "open");
    const closed = this.visible.filter((index) => this.box(index).form !== "open");
    this.paintBoxes(open);
    this.paintRoutes();
    this.paintHeaders(open);
    this.paintBoxes(closed);
    this.paintTexts();
    this.paintMarks();
  }

  private box(index: number): Box {
    return this.indexed.box(index)!;
  }

  private findVisible(): void {
    const { x, y, right, bottom, end, numBoxes } = this.indexed;
    const least = LEAST_INSIDE * this.pixel;
    for (let index = 0; index < numBoxes; ) {
      const isOff = right[index] < this.left || x[index] > this.right || bottom[index] < this.top || y[index] > this.bottom;
      if (isOff) {
        index = end[index];
        continue;
      }
      this.visible.push(index);
      const isSmall = right[index] - x[index] < least || bottom[index] - y[index] < least;
      index = isSmall ? end[index] : index + 1;
    }
  }

  /** Boxes of one colour in one path. */
  private paintBoxes(indices: number[]): void {
    const groups = new Map<string, number[]>();
    for (const index of indices) {
      const key = this.fillOf(this.box(index));
      const group = groups.get(key);
      if (group) group.push(index);
      else groups.set(key, [index]);
    }
    for (const [key, group] of groups) {
      const [fill, stroke] = key.split("|");
      this.context.beginPath();
      for (const index of group) this.traceBox(index);
      this.context.fillStyle = fill;
      this.context.fill();
      if (indices.length > 8000) continue;
      this.context.lineWidth = Math.min(1, Math.max(0.6, this.pixel * 0.7));
      this.context.strokeStyle = stroke;
      this.context.stroke();
    }
  }

  private fillOf(box: Box): string {
    const item = this.graph.items[box.item];
    const look = this.marks.looks.get(item.id);
    // Too small for a border: its colour is what is left of it.
    if (Math.min(box.width, box.height) * this.camera.zoom < LEAST_BORDER && !(item.heat >= 0) && !this.marks.heats) {
      const { border } = this.theme.roles[look ?? item.role];
      return `${border}|${border}`;
    }
    if (box.form === "open") return `${this.theme.open[box.depth % this.theme.open.length]}|${look ? this.theme.roles[look].border : this.theme.openBorder}`;
    const { fill, border } = this.theme.roles[look ?? item.role];
    const heat = this.marks.heats ? (this.marks.heats.get(item.id) ?? -1) : item.heat;
    return `${heat >= 0 ? heatColour(this.theme, heat) : fill}|${border}`;
  }

  /** The band with the name of an open box covers what runs through it. */
  private paintHeaders(open: number[]): void {
    if (HEADER * this.camera.zoom < 4) return;
    this.context.beginPath();
    for (const index of open) {
      const box = this.box(index);
      this.context.rect(box.x + 0.5, box.y + 0.5, box.width - 1, HEADER - 1);
    }
    this.context.fillStyle = this.theme.header;
    this.context.fill();
  }

  private traceBox(index: number): void {
    const box = this.box(index);
    if (box.width * this.camera.zoom < LEAST_ROUND || this.visible.length > 4000) {
      const width = Math.max(box.width, LEAST_WIDTH * this.pixel); // all of a long graph is a column, but one to be seen
      this.context.rect(box.x + (box.width - width) / 2, box.y, width, box.height);
    } else {
      this.context.roundRect(box.x, box.y, box.width, box.height, 5);
    }
  }

  private paintRoutes(): void {
    const groups = new Map<string, number[]>();
    const routes = this.visibleRoutes();
    for (const index of routes) {
      const kind = this.indexed.route(index).kind;
      const group = groups.get(kind);
      if (group) group.push(index);
      else groups.set(kind, [index]);
    }
    const isPlain = routes.length > MOST_CURVES;
    for (const [kind, group] of groups) {
      this.context.beginPath();
      for (const index of group) this.traceRoute(index, isPlain);
      this.context.strokeStyle = this.theme.edges[kind as keyof Theme["edges"]];
      this.context.lineWidth = Math.min(1.4, Math.max(0.8, this.pixel * 0.8));
      this.context.setLineDash(kind === "memory" ? [4, 3] : []);
      this.context.stroke();
      this.context.setLineDash([]);
      if (this.camera.zoom > 0.35 && !isPlain) this.paintArrows(group, this.context.strokeStyle as string);
    }
  }

  private visibleRoutes(): number[] {
    const { bounds, numRoutes } = this.indexed;
    const found: number[] = [];
    // Many routes on the screen: the short ones say nothing, since their boxes touch.
    let least = LEAST_ROUTE * this.pixel;
    if (numRoutes > MOST_ROUTES && this.visible.length > 2000) least *= 4;
    const leastInside = LEAST_INSIDE * this.pixel;
    for (let index = 0; index < numRoutes && found.length < MOST_ROUTES; index++) {
      const at = index * 4;
      if (bounds[at] > this.right || bounds[at + 2] < this.left) continue;
      if (bounds[at + 1] > this.bottom || bounds[at + 3] < this.top) continue;
      if (bounds[at + 3] - bounds[at + 1] < least && bounds[at + 2] - bounds[at] < least) continue;
      const around = this.indexed.box(this.box(this.indexed.route(index).from).parent);
      if (around && (around.width < leastInside || around.height < leastInside)) continue;
      found.push(index);
    }
    return found;
  }

  private traceRoute(index: number, isPlain: boolean): void {
    const route = this.indexed.route(index);
    const { points } = route;
    this.context.moveTo(points[0], points[1]);
    if (isPlain) {
      for (let at = 2; at < points.length; at += 2) this.context.lineTo(points[at], points[at + 1]);
      return;
    }
    for (const command of outline(route, "down")) {
      if (command[0] === "C") {
        this.context.bezierCurveTo(command[1], command[2], command[3], command[4], command[5], command[6]);
      } else if (command[0] === "L") {
        this.context.lineTo(command[1], command[2]);
      }
    }
  }

  private paintArrows(indices: number[], colour: string): void {
    this.context.fillStyle = colour;
    this.context.beginPath();
    for (const index of indices) {
      const { x, y, dx, dy } = arrowOf(this.indexed.route(index), "down");
      this.context.moveTo(x, y);
      this.context.lineTo(x - 6 * dx - 3 * dy, y - 6 * dy + 3 * dx);
      this.context.lineTo(x - 6 * dx + 3 * dy, y - 6 * dy - 3 * dx);
      this.context.closePath();
    }
    this.context.fill();
  }

  private paintTexts(): void {
    const fonts = new Map<string, { text: Text; box: Box }[]>();
    for (const index of this.visible) {
      const box = this.box(index);
      for (const text of box.texts) {
        if (text.size * this.camera.zoom < LEAST_TEXT) continue;
        const key = `${text.bold ? "600 " : ""}${text.size}px ${FONT}|${this.theme.texts[text.role]}|${text.align}`;
        const group = fonts.get(key);
        if (group) group.push({ text, box });
        else fonts.set(key, [{ text, box }]);
      }
    }
    this.context.textBaseline = "alphabetic";
    for (const [key, texts] of fonts) {
      const [font, colour, align] = key.split("|");
      this.context.font = font;
      this.context.fillStyle = colour;
      this.context.textAlign = align === "middle" ? "center" : (align as CanvasTextAlign);
      for (const { text, box } of texts) this.context.fillText(text.text, box.x + text.x, box.y + text.y);
    }
  }

  private paintMarks(): void {
    const { selected, hovered, inflows, outflows, found, tints } = this.marks;
    this.paintMarkedRoutes(inflows, this.colours.source);
    this.paintMarkedRoutes(outflows, this.colours.user);
    for (const index of this.visible) {
      const tint = tints.size ? tints.get(this.graph.items[this.box(index).item].id) : undefined;
      if (tint) this.paintFrame(index, tint, 4);
      if (found.has(index)) this.paintFrame(index, this.colours.found, 2.5);
    }
    if (hovered >= 0) this.paintFrame(hovered, this.colours.hover, 1.5);
    if (selected >= 0) this.paintFrame(selected, this.colours.select, 3);
  }

  private paintMarkedRoutes(indices: number[], colour: string): void {
    if (!indices.length) return;
    this.context.beginPath();
    for (const index of indices.slice(0, MOST_CURVES)) this.traceRoute(index, false);
    this.context.strokeStyle = colour;
    this.context.lineWidth = Math.max(2, 1.6 * this.pixel);
    this.context.stroke();
    if (this.camera.zoom > 0.2) this.paintArrows(indices.slice(0, MOST_CURVES), colour);
  }

  private paintFrame(index: number, colour: string, width: number): void {
    const box = this.indexed.box(index);
    if (box === undefined) return;
    const line = Math.max(width * 0.8, width * Math.min(this.pixel, 40));
    this.context.strokeStyle = colour;
    this.context.lineWidth = line;
    this.context.beginPath();
    this.context.roundRect(box.x - line / 2, box.y - line / 2, box.width + line, box.height + line, 6);
    this.context.stroke();
  }
}
