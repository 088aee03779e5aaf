// Which items are open when a graph is first seen: as many levels as a screen can hold.

import type { Graph } from "../scene/graph";

const ENOUGH_BOXES = 28;

export function startingOpen(graph: Graph): Set<string> {
  const children = new Map<number, number[]>();
  graph.items.forEach((item, index) => {
    const siblings = children.get(item.parent);
    if (siblings) siblings.push(index);
    else children.set(item.parent, [index]);
  });
  const open = new Set<string>();
  let level = children.get(-1) ?? [];
  let shown = level.length;
  while (level.length) {
    const next: number[] = [];
    for (const index of level) {
      const inside = children.get(index);
      if (!inside || shown + inside.length > ENOUGH_BOXES) continue;
      shown += inside.length;
      open.add(graph.items[index].id);
      next.push(...inside);
    }
    level = next;
  }
  return open;
}
