// One graph on the page: its drawing, what is open, entered, selected, found. Views share it with their tables.

import type { Graph, Item, Role } from "../scene/graph";
import { drawer } from "./drawer";
import { IndexedScene } from "./indexed";
import type { GraphOptions } from "./protocol";

export const PLAIN: GraphOptions = { level: "function", rolled: false, fold: true, colourBy: "" };

export class GraphState {
  options = $state.raw<GraphOptions>(PLAIN);
  /** Id of the item that is entered, "" for the whole. */
  root = $state("");
  open = $state.raw<Set<string>>(new Set());
  /** Id of the selected item, "" for none. */
  selected = $state("");
  found = $state.raw<Set<string>>(new Set());
  tints = $state.raw<Map<string, string>>(new Map());
  /** How much of something items have, 0 to 1 by id, in place of what the graph says; null: as the graph says. */
  heats = $state.raw<Map<string, number> | null>(null);
  /** Roles by id in place of those the graph has: what a comparison says of items. */
  looks = $state.raw<Map<string, Role>>(new Map());
  graph = $state.raw<Graph | null>(null);
  whole = $state.raw<Graph | null>(null);
  indexed = $state.raw<IndexedScene | null>(null);
  isDrawing = $state(false);
  error = $state("");
  /** Grows with every drawing of another graph: the camera then starts anew. */
  drawings = $state(0);
  /** Set to bring an item into view; the canvas empties it. */
  reveal = $state("");
  /** The item that stays where it is on the screen while the next drawing replaces this one. */
  anchor = "";
  private indices = new Map<string, number>();
  private latest = 0;

  constructor(readonly name: string) {}

  /** Draw data, or the same data with other options. */
  async draw(data: unknown, open: string[] | "all" | null = null): Promise<void> {
    await this.ask({ data, open, wantsGraph: true });
    this.drawings++;
  }

  async choose(changes: Partial<GraphOptions>): Promise<void> {
    const reshapes = Object.keys(changes).some((name) => name !== "colourBy");
    this.options = { ...this.options, ...changes };
    await this.ask({ open: reshapes ? null : [...this.open], wantsGraph: true });
    if (reshapes) this.drawings++;
  }

  /** Add tables to the data that was drawn; what is coloured by them is drawn again. */
  async supply(tables: object, isDrawn: boolean): Promise<void> {
    drawer.supply({ name: this.name, tables, isDrawn });
    if (isDrawn) await this.ask({ open: [...this.open], wantsGraph: true });
  }

  async enter(id: string): Promise<void> {
    this.root = id;
    await this.ask({ open: null, wantsGraph: true });
    if (this.selected && this.item(this.selected) === null) this.selected = "";
    this.drawings++;
  }

  toggle(id: string): Promise<void> {
    const open = new Set(this.open);
    if (!open.delete(id)) open.add(id);
    this.anchor = id;
    return this.ask({ open: [...open], wantsGraph: false });
  }

  async openAll(): Promise<void> {
    await this.ask({ open: "all", wantsGraph: false });
    this.drawings++;
  }

  async closeAll(): Promise<void> {
    await this.ask({ open: [], wantsGraph: false });
    this.drawings++;
  }

  /** Select an item, opening what it is in, and bring it into view. */
  async show(id: string): Promise<void> {
    const around = this.around(id);
    if (around === null) {
      if (this.root && this.whole?.items.some((item) => item.id === id)) {
        await this.enter("");
        await this.show(id);
      }
      return;
    }
    const closed = around.filter((outer) => !this.open.has(outer));
    if (closed.length) await this.ask({ open: [...this.open, ...closed], wantsGraph: false });
    this.selected = id;
    this.reveal = id;
  }

  /** Show the first of some items that the graph has; where blocks are folded, unfold them to find one. */
  async showFirst(ids: readonly string[]): Promise<void> {
    const known = ids.find((id) => this.index(id) >= 0 || this.whole?.items.some((item) => item.id === id));
    if (known) await this.show(known);
    else if (this.options.fold) {
      await this.choose({ fold: false });
      await this.showFirst(ids);
    }
  }

  index(id: string): number {
    return this.indices.get(id) ?? -1;
  }

  item(id: string): Item | null {
    return this.graph?.items[this.index(id)] ?? null;
  }

  /** Ids of the items around one, outermost first; null where it is not in this graph. */
  around(id: string): string[] | null {
    const items = this.graph?.items;
    let index = this.index(id);
    if (!items || index < 0) return null;
    const around: string[] = [];
    while ((index = items[index].parent) >= 0) around.unshift(items[index].id);
    return around;
  }

  private async ask(request: { data?: unknown; open: string[] | "all" | null; wantsGraph: boolean }): Promise<void> {
    const mine = ++this.latest;
    this.isDrawing = true;
    try {
      const drawn = await drawer.ask({ name: this.name, options: this.options, root: this.root, ...request });
      if (mine !== this.latest) return; // asked again since
      if (drawn.graph) this.take(drawn.graph, drawn.whole);
      this.open = new Set(drawn.open);
      this.indexed = new IndexedScene(drawn.scene, this.graph!);
      this.error = "";
    } catch (error) {
      if (mine === this.latest) this.error = String(error);
    } finally {
      if (mine === this.latest) this.isDrawing = false;
    }
  }

  private take(graph: Graph, whole: Graph | null): void {
    this.graph = graph;
    this.whole = whole ?? graph;
    this.indices = new Map(graph.items.map((item, index) => [item.id, index]));
  }
}
