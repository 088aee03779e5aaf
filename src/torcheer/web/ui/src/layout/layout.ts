/** Lays out a graph: level by level from the innermost open box outwards, each level once however often it occurs. What
 * an opened or closed box leaves as it was is not laid out again. */

import { EDGE_KINDS, type EdgeKind, type Graph } from "../scene/graph";
import { measure, type Size } from "../scene/measure";
import { BOX, FORMS, type Packed, ROUTE, unpack } from "../scene/packed";
import { HEADER, type Scene } from "../scene/scene";
import { layoutLevel, type Level, type LevelLayout, type Net } from "./level";
import { type Link, Tree } from "./tree";

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
  /** The layout in which it last became other than it was. */
  since: number;
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

/** The way of a link, in the layout in which it was found, and where the box around it then was. */
interface Way {
  points: number[];
  back: boolean;
  found: number;
  x: number;
  y: number;
}

const PADDING = 12;
const MARGIN = 16;
const GRADIENT_ASIDE = 5;

export function layout(graph: Graph, isOpen: IsOpen, options: LayoutOptions = {}): Scene {
  return unpack(new Layouter(graph, options).layout(isOpen), graph);
}

export class Layouter {
  private readonly tree: Tree;
  private readonly turned: boolean;
  /** By item, the top first. */
  private readonly contents: (Content | undefined)[] = [];
  /** 1 where lines are other than before; where sizes are. By item, the top first. */
  private readonly isTouched: Uint8Array;
  private readonly isMoved: Uint8Array;
  private readonly ways = new WeakMap<Link, Way>();
  private readonly sizes: (Size | undefined)[] = [];
  private round = 0;

  constructor(
    private readonly graph: Graph,
    options: LayoutOptions = {},
    private readonly memo: Memo = new Map(),
  ) {
    this.turned = options.direction === "right";
    this.tree = new Tree(graph);
    this.isTouched = new Uint8Array(graph.items.length + 1);
    this.isMoved = new Uint8Array(graph.items.length + 1);
    this.isTouched[0] = 1;
  }

  layout(isOpen: IsOpen): Packed {
    this.round++;
    this.tree.update(isOpen, (box) => (this.isTouched[box + 1] = 1));
    for (let at = 0; at < this.isTouched.length; at++) {
      if (!this.isTouched[at]) continue;
      const isThere = at === 0 || this.tree.isOpen[at - 1] === 1;
      const inside = this.contents[at]?.inside;
      this.contents[at] = isThere ? { nets: new Map(), inPorts: new Map(), outPorts: new Map(), netIndex: new Map(), inside, since: this.round } : undefined;
    }
    this.collectNets();
    for (let at = this.isTouched.length - 1; at >= 0; at--)
      if (this.contents[at] && (this.isTouched[at] || this.isMoved[at])) this.layContent(at - 1);
    this.isTouched.fill(0);
    this.isMoved.fill(0);
    const packed = this.assemble();
    return this.turned ? turn(packed) : packed;
  }

  private content(box: number): Content {
    return this.contents[box + 1]!;
  }

  private size(item: number): Size {
    const [isOpen, hasOut] = [this.tree.isOpen[item] === 1, this.tree.hasOut(item)];
    return (this.sizes[4 * item + 2 * Number(isOpen) + Number(hasOut)] ??= measure(this.graph.items[item], isOpen, hasOut, this.turned));
  }

  /** Cut every edge at the borders it crosses; pieces of one source within one box are one net. */
  private collectNets(): void {
    const { links, parent } = this.tree;
    for (let edge = 0; edge < links.length; edge++) {
      const link = links[edge];
      if (!link || link.edges[0] !== edge || link.kind === "gradient") continue;
      const key = source(link.from, link.kind);
      let from: Point = { place: "child", index: link.from };
      for (let child = link.from, box = parent[child]; box !== link.common; child = box, box = parent[box]) {
        if (this.isTouched[box + 1]) {
          const content = this.content(box);
          connect(content, key, from, { place: "out", index: port(content.outPorts, key) });
        }
        from = { place: "child", index: box };
      }
      let to: Point = { place: "child", index: link.to };
      for (let box = parent[link.to]; box !== link.common; box = parent[box]) {
        if (this.isTouched[box + 1]) {
          const content = this.content(box);
          connect(content, key, { place: "in", index: port(content.inPorts, key) }, to);
        }
        to = { place: "child", index: box };
      }
      if (this.isTouched[link.common + 1]) connect(this.content(link.common), key, from, to);
    }
  }

  /** Lay out what is inside a box, or take the layout of an equal one. */
  private layContent(item: number): void {
    const content = this.content(item);
    const { children: inside, top, place, parent } = this.tree;
    const children = item < 0 ? top : inside[item];
    const inner = (child: number) => this.contents[child + 1]?.inside;
    const level: Level = {
      widths: children.map((child) => (inner(child) ?? this.size(child)).width),
      heights: children.map((child) => (inner(child) ?? this.size(child)).height),
      numIn: content.inPorts.size,
      numOut: content.outPorts.size,
      nets: [],
    };
    const ids = children.map((child) => inner(child)?.id ?? -1);
    const end = (point: Point, way: "inPorts" | "outPorts", key: number) => {
      if (point.place !== "child") return { vertex: children.length + (point.place === "out" ? level.numIn : 0) + point.index, offset: 0 };
      const vertex = place[point.index];
      const box = inner(point.index);
      if (!box) return { vertex, offset: 0 };
      const x = (way === "inPorts" ? box.inX : box.outX)[this.content(point.index)[way].get(key)!];
      return { vertex, offset: x - box.width / 2 };
    };
    for (const [key, net] of content.nets) {
      content.netIndex.set(key, level.nets.length);
      const targets = net.targets.map((target) => end(target, "inPorts", key));
      level.nets.push({ source: end(net.source, "outPorts", key), targets });
    }
    const least = item < 0 ? 0 : this.size(item).width;
    const key = levelKey(level, ids, least, this.turned);
    let found = this.memo.get(key);
    if (!found) this.memo.set(key, (found = wrap(layoutLevel(level), level, least, this.memo.size, item < 0, this.turned)));
    content.since = this.round;
    if (found === content.inside) return;
    content.inside = found;
    if (item >= 0) this.isMoved[parent[item] + 1] = 1;
  }

  /** Give every box and every route its place in the picture. */
  private assemble(): Packed {
    const { width, height } = this.content(-1).inside!;
    const boxOf = new Int32Array(this.tree.parent.length).fill(-1);
    const boxes = this.placeBoxes(boxOf);
    const { links } = this.tree;
    const seen = links.filter((link, edge): link is Link => link !== undefined && link.edges[0] === edge);
    const ways = this.findWays(seen, boxes, boxOf);
    const drawn = seen.filter((_, at) => ways[at] !== null);
    const routes = new Int32Array(drawn.length * ROUTE);
    const points = new Float64Array(ways.reduce((sum, way) => sum + (way?.points.length ?? 0), 0));
    const edges = new Int32Array(drawn.reduce((sum, link) => sum + link.edges.length, 0));
    let [at, pointEnd, edgeEnd] = [0, 0, 0];
    seen.forEach((link, index) => {
      const way = ways[index];
      if (!way) return;
      points.set(way.points, pointEnd);
      edges.set(link.edges, edgeEnd);
      pointEnd += way.points.length;
      edgeEnd += link.edges.length;
      routes[at++] = boxOf[link.from];
      routes[at++] = boxOf[link.to];
      routes[at++] = EDGE_KINDS.indexOf(link.kind);
      routes[at++] = Number(way.back);
      routes[at++] = link.common < 0 ? 0 : boxes[boxOf[link.common] * BOX + 2] + 1;
      routes[at++] = pointEnd;
      routes[at++] = edgeEnd;
    });
    return { width, height, direction: "down", boxes, routes, points, edges };
  }

  private placeBoxes(boxOf: Int32Array): Float64Array {
    const { tree } = this;
    const seen = tree.order.filter((item) => tree.isSeen(item));
    const boxes = new Float64Array(seen.length * BOX);
    for (let box = 0, at = 0; box < seen.length; box++, at += BOX) {
      const item = seen[box];
      const around = tree.parent[item];
      const { inside } = this.content(around);
      const parent = around < 0 ? -1 : boxOf[around];
      const own = tree.isOpen[item] ? this.content(item).inside : undefined;
      const size = this.size(item);
      const { width, height } = own ?? size;
      const place = tree.place[item];
      boxOf[item] = box;
      boxes[at] = item;
      boxes[at + 1] = parent;
      boxes[at + 2] = parent < 0 ? 0 : boxes[parent * BOX + 2] + 1;
      boxes[at + 3] = (parent < 0 ? 0 : boxes[parent * BOX + 3]) + inside!.left + inside!.level.x[place] - width / 2;
      boxes[at + 4] = (parent < 0 ? 0 : boxes[parent * BOX + 4]) + inside!.top + inside!.level.y[place];
      boxes[at + 5] = width;
      boxes[at + 6] = height - (own ? 0 : size.below);
      boxes[at + 7] = FORMS.indexOf(own ? "open" : tree.children[item].length ? "closed" : "node");
      boxes[at + 8] = Number(tree.hasOut(item));
    }
    return boxes;
  }

  /** The ways of links; null for a gradient along no way. Where nothing has changed, the way is only moved. */
  private findWays(links: Link[], boxes: Float64Array, boxOf: Int32Array): (Way | null)[] {
    const forward = new Map<string, Way>();
    const hasGradients = links.some(({ kind }) => kind === "gradient");
    return links.map((link) => {
      if (link.kind === "gradient") {
        const along = forward.get(`${link.to}>${link.from}`);
        return along ? { ...along, points: aside(along.points) } : null;
      }
      const around = link.common < 0 ? -1 : boxOf[link.common] * BOX;
      const [x, y] = around < 0 ? [0, 0] : [boxes[around + 3], boxes[around + 4]];
      let way = this.ways.get(link);
      if (!way || this.lastChange(link) > way.found) {
        way = { ...this.trace(link, boxes, boxOf), found: this.round, x, y };
        this.ways.set(link, way);
      } else if (way.x !== x || way.y !== y) shift(way, x, y);
      const name = hasGradients ? `${link.from}>${link.to}` : "";
      if (name && (link.kind === "tensor" || !forward.has(name))) forward.set(name, way);
      return way;
    });
  }

  /** When something last changed in a box that a link leads through. */
  private lastChange({ from, to, common }: Link): number {
    const { parent } = this.tree;
    let last = this.content(common).since;
    for (let box = parent[from]; box !== common; box = parent[box]) last = Math.max(last, this.content(box).since);
    for (let box = parent[to]; box !== common; box = parent[box]) last = Math.max(last, this.content(box).since);
    return last;
  }

  /** Follow a link through all the boxes it crosses. */
  private trace(link: Link, boxes: Float64Array, boxOf: Int32Array): { points: number[]; back: boolean } {
    const { parent } = this.tree;
    const key = source(link.from, link.kind);
    const start = boxOf[link.from] * BOX;
    const points: number[] = [];
    let back = false;
    const add = (box: number, to: Point) => {
      const content = this.content(box);
      const { left, top, height, level } = content.inside!;
      const around = box < 0 ? -1 : boxOf[box] * BOX;
      const [x0, y0] = box < 0 ? [0, 0] : [boxes[around + 3], boxes[around + 4]];
      const index = content.netIndex.get(key)!;
      const net = content.nets.get(key)!;
      const place = net.indices.get(nameOf(to))!;
      const path = level.paths[index][place];
      // The strip below a box, with the shape of what it gives, belongs to the line.
      if (!points.length) push(points, x0 + left + path[0], boxes[start + 4] + boxes[start + 6]);
      if (net.source.place === "in") push(points, x0 + left + path[0], y0);
      for (let at = 0; at < path.length; at += 2) push(points, x0 + left + path[at], y0 + top + path[at + 1]);
      if (to.place === "out") push(points, points[points.length - 2], y0 + height);
      back ||= level.back[index][place];
    };
    for (let box = parent[link.from]; box !== link.common; box = parent[box])
      add(box, { place: "out", index: this.content(box).outPorts.get(key)! });
    const way: number[] = [];
    for (let box = link.to; box !== link.common; box = parent[box]) way.push(box);
    add(link.common, { place: "child", index: way[way.length - 1] });
    for (let at = way.length - 1; at > 0; at--) add(way[at], { place: "child", index: way[at - 1] });
    return { points, back };
  }
}

const source = (from: number, kind: EdgeKind) => from * EDGE_KINDS.length + EDGE_KINDS.indexOf(kind);

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

function shift(way: Way, x: number, y: number): void {
  for (let at = 0; at < way.points.length; at += 2) {
    way.points[at] += x - way.x;
    way.points[at + 1] += y - way.y;
  }
  way.x = x;
  way.y = y;
}

/** Lay a picture on its side: what went down goes to the right. */
function turn(packed: Packed): Packed {
  const { boxes, points } = packed;
  for (let at = 0; at < boxes.length; at += BOX) {
    [boxes[at + 3], boxes[at + 4]] = [boxes[at + 4], boxes[at + 3]];
    [boxes[at + 5], boxes[at + 6]] = [boxes[at + 6], boxes[at + 5]];
  }
  for (let at = 0; at < points.length; at += 2) [points[at], points[at + 1]] = [points[at + 1], points[at]];
  return { ...packed, width: packed.height, height: packed.width, direction: "right" };
}
