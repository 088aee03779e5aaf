/** Lays out a graph: level by level from the innermost open box outwards, each level once however often it occurs. */

import { EDGE_KINDS, type EdgeKind, type Graph, type Item } from "../scene/graph";
import { measure, type Size } from "../scene/measure";
import { type Box, HEADER, type Route, type Scene, type Text } from "../scene/scene";
import { layoutLevel, type Level, type LevelLayout, type Net } from "./level";
import { buildTree, type Tree } from "./tree";

export interface LayoutOptions {
  direction?: "down" | "right";
}

/** Layouts of levels by what is in them. Keep one as long as graphs are similar: equal blocks are then laid out once. */
export type Memo = Map<string, Inside>;

/** Whether an item with items inside is open. */
export type IsOpen = (item: number) => boolean;

/** An open box, laid out: its own size, and where its ports are on its borders. */
interface Inside {
  id: number;
  width: number;
  height: number;
  left: number;
  top: number;
  level: LevelLayout;
  inX: number[];
  outX: number[];
}

/** What is in an open box (or at the top), in this graph. */
interface Content {
  nets: Map<number, NetHere>;
  /** Ports by source: in which order they are among the ports. */
  inPorts: Map<number, number>;
  outPorts: Map<number, number>;
  inside?: Inside;
  netIndex: Map<number, number>;
}

interface NetHere {
  source: Point;
  targets: Point[];
  /** Where each target is among them, by `nameOf`. */
  indices: Map<number, number>;
}

/** An end of a net before sizes are known: a child, or a port of the box itself. */
interface Point {
  place: "child" | "in" | "out";
  index: number;
}

const PADDING = 12;
const MARGIN = 16;
const GRADIENT_ASIDE = 5;

export function layout(graph: Graph, isOpen: IsOpen, options: LayoutOptions = {}, memo: Memo = new Map()): Scene {
  const turned = options.direction === "right";
  const tree = buildTree(graph, isOpen);
  const sizes = tree.visible.map((item) => measured(graph.items[item], tree.isOpen[item], tree.hasOut[item], turned));
  const sizeOf = new Map(tree.visible.map((item, at) => [item, sizes[at]]));
  const contents = collectNets(tree);
  for (let at = tree.open.length - 1; at >= -1; at--) {
    const item = at < 0 ? -1 : tree.open[at];
    layContent(item, tree, contents, sizeOf, memo, turned);
  }
  const scene = assemble(tree, contents, sizeOf, turned);
  return turned ? turn(scene) : scene;
}

/** Measured once, however often a graph is laid out. */
const known = new WeakMap<Item, Size[]>();

function measured(item: Item, isOpen: boolean, hasOut: boolean, turned: boolean): Size {
  let sizes = known.get(item);
  if (!sizes) known.set(item, (sizes = []));
  return (sizes[Number(isOpen) * 4 + Number(hasOut) * 2 + Number(turned)] ??= measure(item, isOpen, hasOut, turned));
}

const source = (from: number, kind: EdgeKind) => from * EDGE_KINDS.length + EDGE_KINDS.indexOf(kind);

/** Cut every edge at the borders it crosses; pieces of one source within one box are one net. */
function collectNets(tree: Tree): Map<number, Content> {
  const contents = new Map<number, Content>();
  for (const item of [-1, ...tree.open])
    contents.set(item, { nets: new Map(), inPorts: new Map(), outPorts: new Map(), netIndex: new Map() });
  for (const link of tree.links) {
    if (link.kind === "gradient") continue;
    const key = source(link.from, link.kind);
    let from: Point = { place: "child", index: link.from };
    let child = link.from;
    for (let box = tree.parent[child]; box !== link.common; child = box, box = tree.parent[box]) {
      const content = contents.get(box)!;
      connect(content, key, from, { place: "out", index: port(content.outPorts, key) });
      from = { place: "child", index: box };
    }
    const way: number[] = [];
    for (let box = link.to; box !== link.common; box = tree.parent[box]) way.push(box);
    connect(contents.get(link.common)!, key, from, { place: "child", index: way[way.length - 1] });
    for (let at = way.length - 1; at > 0; at--) {
      const content = contents.get(way[at])!;
      const entry: Point = { place: "in", index: port(content.inPorts, key) };
      connect(content, key, entry, { place: "child", index: way[at - 1] });
    }
  }
  return contents;
}

function port(ports: Map<number, number>, key: number): number {
  let found = ports.get(key);
  if (found === undefined) ports.set(key, (found = ports.size));
  return found;
}

function connect(content: Content, key: number, from: Point, to: Point): void {
  let net = content.nets.get(key);
  if (!net) content.nets.set(key, (net = { source: from, targets: [], indices: new Map() }));
  const name = nameOf(to);
  if (net.indices.has(name)) return;
  net.indices.set(name, net.targets.length);
  net.targets.push(to);
}

const nameOf = ({ place, index }: Point) => 3 * index + (place === "child" ? 0 : place === "in" ? 1 : 2);

/** Lay out what is inside a box, or take the layout of an equal one. */
function layContent(
  item: number, tree: Tree, contents: Map<number, Content>, sizeOf: Map<number, Size>, memo: Memo, turned: boolean,
): void {
  const content = contents.get(item)!;
  const children = tree.children.get(item) ?? [];
  const local = new Map(children.map((child, at) => [child, at]));
  const level: Level = {
    widths: children.map((child) => contents.get(child)?.inside?.width ?? sizeOf.get(child)!.width),
    heights: children.map((child) => contents.get(child)?.inside?.height ?? sizeOf.get(child)!.height),
    numIn: content.inPorts.size,
    numOut: content.outPorts.size,
    nets: [],
  };
  const ids = children.map((child) => contents.get(child)?.inside?.id ?? -1);
  const vertexOf = (point: Point) =>
    point.place === "child"
      ? local.get(point.index)!
      : children.length + (point.place === "out" ? level.numIn : 0) + point.index;
  for (const [key, net] of content.nets) {
    content.netIndex.set(key, level.nets.length);
    const end = (point: Point, way: "inPorts" | "outPorts") => {
      const inner = point.place === "child" ? contents.get(point.index) : undefined;
      if (!inner?.inside) return { vertex: vertexOf(point), offset: 0 };
      const x = (way === "inPorts" ? inner.inside.inX : inner.inside.outX)[inner[way].get(key)!];
      return { vertex: vertexOf(point), offset: x - inner.inside.width / 2 };
    };
    const targets = net.targets.map((target) => end(target, "inPorts"));
    level.nets.push({ source: end(net.source, "outPorts"), targets });
  }
  const least = item < 0 ? 0 : sizeOf.get(item)!.width;
  const key = levelKey(level, ids, least, turned);
  let inside = memo.get(key);
  if (!inside) memo.set(key, (inside = wrap(layoutLevel(level), level, least, memo.size, item < 0, turned)));
  content.inside = inside;
}

function levelKey(level: Level, ids: number[], least: number, turned: boolean): string {
  const boxes = ids.map((id, at) => (id < 0 ? `${level.widths[at]}x${level.heights[at]}` : `#${id}`)).join(" ");
  const end = ({ vertex, offset }: Net["source"]) => (offset ? `${vertex}@${Math.round(offset * 8)}` : `${vertex}`);
  const nets = level.nets.map((net) => `${end(net.source)}>${net.targets.map(end).join(",")}`).join(" ");
  return `${turned ? "r" : "d"}${least}|${boxes}|${level.numIn},${level.numOut}|${nets}`;
}

/** Put a border around a level: header, padding, and room for what the header says. */
function wrap(level: LevelLayout, given: Level, least: number, id: number, isTop: boolean, turned: boolean): Inside {
  const numBoxes = given.widths.length;
  const padding = isTop ? MARGIN : PADDING;
  // Turned, x and y change places in the end; the header is to be at the top all the same.
  const headX = turned && !isTop ? HEADER : 0;
  const headY = turned || isTop ? 0 : HEADER;
  const width = Math.max(level.width + 2 * padding + headX, turned ? 0 : least);
  const height = Math.max(level.height + 2 * padding + headY - (given.numIn ? padding / 2 : 0), turned ? least : 0);
  const left = headX + (width - headX - level.width) / 2;
  const top = headY + (given.numIn ? padding / 2 : padding);
  const x = (vertex: number) => left + level.x[vertex];
  return {
    id, width, height, left, top, level,
    inX: Array.from({ length: given.numIn }, (_, at) => x(numBoxes + at)),
    outX: Array.from({ length: given.numOut }, (_, at) => x(numBoxes + given.numIn + at)),
  };
}

/** A box with its place. Its texts are made when somebody draws them. */
class LaidBox implements Box {
  constructor(
    readonly item: number, readonly parent: number, readonly depth: number,
    public x: number, public y: number, public width: number, public height: number,
    readonly form: Box["form"], private readonly size: Size, private readonly seenWidth: number,
  ) {}

  get texts(): Text[] {
    return this.size.texts(this.seenWidth);
  }

  /** For Python: the fields of a box, as JSON has them. */
  toJSON(): Box {
    const { item, parent, depth, x, y, width, height, form, texts } = this;
    return { item, parent, depth, x, y, width, height, form, texts };
  }
}

/** Give every box and every route its place in the picture. */
function assemble(
  tree: Tree, contents: Map<number, Content>, sizeOf: Map<number, Size>, turned: boolean,
): Scene {
  const top = contents.get(-1)!.inside!;
  const boxes: Box[] = [];
  const boxOf = new Int32Array(tree.parent.length).fill(-1);
  for (const item of tree.visible) {
    const around = tree.parent[item];
    const { inside } = contents.get(around)!;
    const parent = around < 0 ? -1 : boxOf[around];
    const [x0, y0] = parent < 0 ? [0, 0] : [boxes[parent].x, boxes[parent].y];
    const own = contents.get(item)?.inside;
    const size = sizeOf.get(item)!;
    const at = tree.place[item];
    const [width, height] = own ? [own.width, own.height] : [size.width, size.height];
    const x = x0 + inside!.left + inside!.level.x[at] - width / 2;
    const y = y0 + inside!.top + inside!.level.y[at];
    boxOf[item] = boxes.length;
    const depth = parent < 0 ? 0 : boxes[parent].depth + 1;
    const form = own ? "open" : tree.hasInside[item] ? "closed" : "node";
    const seen = height - (own ? 0 : size.below);
    boxes.push(new LaidBox(item, parent, depth, x, y, width, seen, form, size, turned ? height : width));
  }
  const routes: Route[] = [];
  const forward = new Map<string, Route>();
  const hasGradients = tree.links.some(({ kind }) => kind === "gradient");
  for (const link of tree.links) {
    const ends = { from: boxOf[link.from], to: boxOf[link.to], edges: link.edges, kind: link.kind };
    const depth = link.common < 0 ? 0 : boxes[boxOf[link.common]].depth + 1;
    if (link.kind === "gradient") {
      const along = forward.get(`${link.to}>${link.from}`);
      if (along) routes.push({ ...ends, depth, points: aside(along.points), back: along.back });
      continue;
    }
    const { points, back } = trace(link, tree, contents, boxes, boxOf);
    const route: Route = { ...ends, depth, points, back };
    const name = hasGradients ? `${link.from}>${link.to}` : "";
    if (name && (link.kind === "tensor" || !forward.has(name))) forward.set(name, route);
    routes.push(route);
  }
  return { width: top.width, height: top.height, direction: turned ? "right" : "down", boxes, routes };
}

/** Follow a link through all the boxes it crosses. */
function trace(
  link: Tree["links"][number], tree: Tree, contents: Map<number, Content>, boxes: Box[], boxOf: Int32Array,
): { points: number[]; back: boolean } {
  const key = source(link.from, link.kind);
  // The strip below a box, with the shape of what it gives, belongs to the line.
  const start = boxes[boxOf[link.from]];
  const points: number[] = [];
  let back = false;
  const add = (box: number, to: Point) => {
    const content = contents.get(box)!;
    const inside = content.inside!;
    const [x0, y0] = box < 0 ? [0, 0] : [boxes[boxOf[box]].x, boxes[boxOf[box]].y];
    const index = content.netIndex.get(key)!;
    const net = content.nets.get(key)!;
    const place = net.indices.get(nameOf(to))!;
    const path = inside.level.paths[index][place];
    if (!points.length && start.form !== "open") push(points, x0 + inside.left + path[0], start.y + start.height);
    if (net.source.place === "in") push(points, x0 + inside.left + path[0], y0);
    for (let at = 0; at < path.length; at += 2) push(points, x0 + inside.left + path[at], y0 + inside.top + path[at + 1]);
    if (to.place === "out") push(points, points[points.length - 2], y0 + inside.height);
    back ||= inside.level.back[index][place];
  };
  for (let box = tree.parent[link.from]; box !== link.common; box = tree.parent[box])
    add(box, { place: "out", index: contents.get(box)!.outPorts.get(key)! });
  const way: number[] = [];
  for (let box = link.to; box !== link.common; box = tree.parent[box]) way.push(box);
  add(link.common, { place: "child", index: way[way.length - 1] });
  for (let at = way.length - 1; at > 0; at--) add(way[at], { place: "child", index: way[at - 1] });
  return { points, back };
}

/** Add a point, but not twice, and not in the middle of a straight line. */
function push(points: number[], x: number, y: number): void {
  const end = points.length;
  if (end >= 2 && Math.abs(points[end - 2] - x) < 0.01 && Math.abs(points[end - 1] - y) < 0.01) return;
  const straight = (axis: number, value: number) =>
    end >= 4 && Math.abs(points[end - 4 + axis] - value) < 0.01 && Math.abs(points[end - 2 + axis] - value) < 0.01;
  if (straight(0, x) && (y - points[end - 1]) * (points[end - 1] - points[end - 3]) > 0) points[end - 1] = y;
  else points.push(x, y);
}

/** The way back, beside the way there: left of it, since the shape stands on the right. */
function aside(points: number[]): number[] {
  const back: number[] = [];
  for (let at = points.length - 2; at >= 0; at -= 2) back.push(points[at] - GRADIENT_ASIDE, points[at + 1]);
  return back;
}

/** Lay a picture on its side: what went down goes to the right. */
function turn(scene: Scene): Scene {
  for (const box of scene.boxes) {
    [box.x, box.y] = [box.y, box.x];
    [box.width, box.height] = [box.height, box.width];
  }
  for (const { points } of scene.routes)
    for (let at = 0; at < points.length; at += 2) [points[at], points[at + 1]] = [points[at + 1], points[at]];
  return { ...scene, width: scene.height, height: scene.width };
}
