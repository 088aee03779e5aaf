/** Equal blocks in a row drawn once, with their number: the twelve layers of GPT-2 are one box ×12.
 *
 * Blocks are equal when what is in them is (kinds, settings, shapes, lines between) and when each reads the one
 * before in the same places. What they read from elsewhere must be the same for all, and only the last may be read
 * from elsewhere, but for outputs of the model.
 */

import type { Edge } from "./graph";
import type { Draft } from "./history_graph";

interface Drafts {
  items: Draft[];
  edges: Edge[];
}

interface Lines {
  in: number[][];
  out: number[][];
}

export function foldRepeats(graph: Drafts): void {
  const ends = subtreeEnds(graph.items);
  const lines: Lines = { in: graph.items.map(() => []), out: graph.items.map(() => []) };
  graph.edges.forEach((edge, index) => {
    lines.in[edge.to].push(index);
    lines.out[edge.from].push(index);
  });
  const signatures = blockSignatures(graph, ends, lines);
  const standsFor = graph.items.map((_, item) => item);
  const children = new Map<number, number[]>();
  graph.items.forEach((item, at) => {
    const siblings = children.get(item.parent);
    if (siblings) siblings.push(at);
    else children.set(item.parent, [at]);
  });
  for (const siblings of children.values())
    for (let first = 0; first < siblings.length; first++) {
      const run = longestRun(graph, ends, lines, signatures, siblings, first);
      if (run.length < 2) continue;
      merge(graph, ends, run, standsFor);
      first += run.length - 1;
    }
  redraw(graph, standsFor);
}

/** One past the last item inside each item; items are in order, so that what is inside follows. */
function subtreeEnds(items: Draft[]): number[] {
  const ends = items.map((_, item) => item + 1);
  for (let item = items.length - 1; item >= 0; item--) {
    const around = items[item].parent;
    if (around >= 0) ends[around] = Math.max(ends[around], ends[item]);
  }
  return ends;
}

/** For each box with something inside what it is like inside, "" for others. */
function blockSignatures(graph: Drafts, ends: number[], lines: Lines): string[] {
  return graph.items.map((_, block) => {
    if (ends[block] === block + 1) return "";
    const parts: string[] = [];
    for (let item = block; item < ends[block]; item++) {
      const { signature, parent, count } = graph.items[item];
      const inner = lines.out[item]
        .map((edge) => graph.edges[edge])
        .filter((edge) => edge.to > block && edge.to < ends[block])
        .map((edge) => `${edge.to - block}${edge.kind[0]}`);
      parts.push(`${item === block ? "" : parent - block} ${count} ${signature} ${inner.sort().join()}`);
    }
    return parts.join(";");
  });
}

function longestRun(
  graph: Drafts, ends: number[], lines: Lines, signatures: string[], siblings: number[], first: number,
): number[] {
  const run = [siblings[first]];
  const signature = signatures[run[0]];
  if (!signature) return run;
  const inside = (block: number, item: number) => item >= block && item < ends[block];
  /** Where a block reads from outside: the reading place, and the place in the block before, or which other item. */
  const reads = (block: number, before: number) => {
    const found: { to: string; from: string }[] = [];
    for (let item = block; item < ends[block]; item++)
      for (const index of lines.in[item]) {
        const edge = graph.edges[index];
        if (inside(block, edge.from) || edge.kind === "gradient") continue;
        const from = before >= 0 && inside(before, edge.from) ? `before ${edge.from - before}` : `item ${edge.from}`;
        found.push({ to: `${item - block}${edge.kind}`, from });
      }
    return found;
  };
  const isReadElsewhere = (block: number, next: number) => {
    for (let item = block; item < ends[block]; item++)
      for (const index of lines.out[item]) {
        const { to, kind } = graph.edges[index];
        const known = inside(block, to) || inside(next, to) || graph.items[to].role === "output";
        if (!known && kind !== "gradient") return true;
      }
    return false;
  };
  const keys = (block: number, before: number) => new Set(reads(block, before).map(({ to, from }) => `${to} ${from}`));
  let pattern: Set<string> | undefined;
  for (let at = first + 1; at < siblings.length && signatures[siblings[at]] === signature; at++) {
    const [before, block] = [run[run.length - 1], siblings[at]];
    if (isReadElsewhere(before, block)) break;
    const found = keys(block, before);
    pattern ??= fits(reads(run[0], -1), found) ? found : undefined;
    if (!pattern || !sameSet(pattern, found)) break;
    run.push(block);
  }
  return run;
}

/** Whether the first block reads in the same places as the second, and the same other items. */
function fits(first: { to: string; from: string }[], second: Set<string>): boolean {
  const places = new Set([...second].map((key) => key.slice(0, key.indexOf(" "))));
  if (!sameSet(places, new Set(first.map(({ to }) => to)))) return false;
  const others = [...second].filter((key) => key.includes(" item "));
  const own = new Set(first.map(({ to, from }) => `${to} ${from}`));
  return others.every((key) => own.has(key));
}

const sameSet = (a: Set<string>, b: Set<string>) => a.size === b.size && [...a].every((key) => b.has(key));

function merge(graph: Drafts, ends: number[], run: number[], standsFor: number[]): void {
  const [first] = run;
  const last = run[run.length - 1];
  for (const block of run.slice(1))
    for (let item = block; item < ends[block]; item++) {
      standsFor[item] = first + item - block;
      graph.items[standsFor[item]].ops.push(...graph.items[item].ops);
    }
  graph.items[first].count *= run.length;
  graph.items[first].title = `${graph.items[first].title} … ${graph.items[last].title}`;
}

/** Leave out what others stand for; outputs of the model that are then alike are one, too. */
function redraw(graph: Drafts, standsFor: number[]): void {
  const final = (item: number) => {
    while (standsFor[item] !== item) item = standsFor[item];
    return item;
  };
  joinOutputs(graph, standsFor, final);
  const kept = graph.items.map((_, item) => final(item) === item);
  const now = new Int32Array(graph.items.length).fill(-1);
  let num = 0;
  kept.forEach((isKept, item) => (now[item] = isKept ? num++ : -1));
  const known = new Set<string>();
  graph.edges = graph.edges.flatMap((edge) => {
    const [from, to] = [now[final(edge.from)], now[final(edge.to)]];
    // Between two equal blocks a line would lead back to the one that stands for both; its number says so.
    const between = from >= to && edge.kind !== "gradient" && edge.from < edge.to;
    const key = `${from} ${to} ${edge.kind} ${edge.label}`;
    if (between || known.has(key)) return [];
    known.add(key);
    edge.from = from;
    edge.to = to;
    return [edge];
  });
  const items = graph.items.filter((_, item) => kept[item]);
  for (const item of items) if (item.parent >= 0) item.parent = now[item.parent];
  graph.items = items;
}

/** Outputs of the model that read the same place of folded blocks are one. */
function joinOutputs(graph: Drafts, standsFor: number[], final: (item: number) => number): void {
  const sources = new Map<number, number[]>();
  for (const edge of graph.edges)
    if (graph.items[edge.to].role === "output") sources.set(edge.to, [...(sources.get(edge.to) ?? []), edge.from]);
  const alike = new Map<string, number[]>();
  for (const [output, from] of sources) {
    const key = `${from.map(final).join()} ${graph.items[output].signature}`;
    alike.set(key, [...(alike.get(key) ?? []), output]);
  }
  for (const outputs of alike.values()) {
    const isFolded = outputs.some((output) => sources.get(output)!.some((from) => final(from) !== from));
    if (!isFolded || outputs.length < 2) continue;
    const first = Math.min(...outputs);
    graph.items[first].count = outputs.length;
    for (const output of outputs) standsFor[output] = first;
  }
}
