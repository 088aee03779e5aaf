// The graph of one module from inside: its items, and what flows in and out of it as items of their own.

import type { Edge, Graph, Item } from "../scene/graph";

export function entered(graph: Graph, root: string): Graph {
  const top = root ? graph.items.findIndex((item) => item.id === root) : -1;
  if (top < 0) return graph;
  const inside = new Set<number>();
  graph.items.forEach((item, index) => (item.parent === top || inside.has(item.parent)) && inside.add(index));
  const items: Item[] = [];
  const place = new Map<number, number>();
  const edges: Edge[] = [];
  const outside = new Map<string, number>();
  const standIn = (index: number, role: "input" | "output"): number => {
    const key = `${role}${index}`;
    let found = outside.get(key);
    if (found === undefined) {
      const item = graph.items[index];
      found = items.length;
      outside.set(key, found);
      items.push({ ...item, id: `${role} ${item.id}`, parent: -1, role, lines: [role === "input" ? "comes in" : "goes out"] });
    }
    return found;
  };
  // What comes in stands first, as it does in a model: an edge to what stands earlier would be drawn as a loop.
  for (const { from, to } of graph.edges) if (inside.has(to) && !inside.has(from)) standIn(from, "input");
  graph.items.forEach((item, index) => {
    if (!inside.has(index)) return;
    place.set(index, items.length);
    items.push({ ...item, parent: item.parent === top ? -1 : place.get(item.parent)! });
  });
  for (const edge of graph.edges) {
    const from = place.get(edge.from);
    const to = place.get(edge.to);
    if (from === undefined && to === undefined) continue;
    edges.push({ ...edge, from: from ?? standIn(edge.from, "input"), to: to ?? standIn(edge.to, "output") });
  }
  return { title: graph.items[top].title, items, edges };
}
