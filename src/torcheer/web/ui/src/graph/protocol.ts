// What the page and its worker say to one another. The worker holds the data, so that it crosses over once.

import type { Graph } from "../scene/graph";
import type { Packed } from "../scene/packed";

export interface GraphOptions {
  level: "function" | "aten";
  rolled: boolean;
  fold: boolean;
  colourBy: string;
}

/** Lay out a graph: of `data` if given, else of the data given before. */
export interface Asked {
  number: number;
  /** What the data is of; a worker keeps what it was given under each name. */
  name: string;
  /** The data itself, or bytes of JSON. */
  data?: unknown;
  options: GraphOptions;
  /** Id of the item that is entered; "" for the whole. */
  root: string;
  /** Ids of open items; null for a choice that fits a screen. */
  open: string[] | "all" | null;
  /** Whether the graph is to be sent back: it is not when only items were opened. */
  wantsGraph: boolean;
}

/** Tables to add to the data that was given under a name. */
export interface Supplied {
  name: string;
  tables: object;
  /** Whether the graph is coloured by them. */
  isDrawn: boolean;
}

export interface Drawn {
  number: number;
  graph: Graph | null;
  /** The graph around it, where one module is entered and its graph was asked for. */
  whole: Graph | null;
  scene: Packed;
  open: string[];
  error?: string;
}
