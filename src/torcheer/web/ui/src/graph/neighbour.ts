// Where an arrow key goes: along edges up and down, else to the nearest box on that side.

import type { IndexedScene } from "./indexed";

export function neighbour(indexed: IndexedScene, from: number, side: string): number {
  if (from < 0) return indexed.numBoxes ? 0 : -1;
  if (side === "up" || side === "down") {
    const { inflows, outflows } = indexed.routesOf(from);
    const routes = side === "up" ? inflows : outflows;
    if (routes.length) {
      const route = indexed.route(routes[0]);
      return side === "up" ? route.from : route.to;
    }
  }
  return nearest(indexed, from, side);
}

function nearest(indexed: IndexedScene, from: number, side: string): number {
  const here = indexed.box(from)!;
  const x = here.x + here.width / 2;
  const y = here.y + here.height / 2;
  let best = -1;
  let least = Infinity;
  for (let index = 0; index < indexed.numBoxes; index++) {
    const box = indexed.box(index)!;
    if (index === from || (index < from && from < indexed.end[index])) continue;
    const dx = box.x + box.width / 2 - x;
    const dy = box.y + box.height / 2 - y;
    const along = side === "left" ? -dx : side === "right" ? dx : side === "up" ? -dy : dy;
    if (along <= 1) continue;
    const across = side === "left" || side === "right" ? Math.abs(dy) : Math.abs(dx);
    const distance = along + 3 * across;
    if (distance < least) {
      least = distance;
      best = index;
    }
  }
  return best;
}
