// Finds items by any word about them: lookup key, title, op, module, shape, "nan". All words must occur.

import type { Graph } from "../scene/graph";

export function searchTexts(graph: Graph): string[] {
  return graph.items.map((item) => [item.key, item.title, ...item.lines, item.out, item.role].join(" ").toLowerCase());
}

/** Indices of the items that match; a query between slashes is a regular expression. */
export function searched(texts: readonly string[], query: string): number[] {
  const matches = matcher(query.trim().toLowerCase());
  const found: number[] = [];
  if (matches) texts.forEach((text, index) => matches(text) && found.push(index));
  return found;
}

function matcher(query: string): ((text: string) => boolean) | null {
  if (!query) return null;
  if (query.length > 2 && query.startsWith("/") && query.endsWith("/")) {
    try {
      const pattern = new RegExp(query.slice(1, -1));
      return (text) => pattern.test(text);
    } catch {
      return () => false;
    }
  }
  const words = query.replace(/[()]/g, "").replaceAll(", ", "×").split(/\s+/);
  return (text) => words.every((word) => text.includes(word));
}
