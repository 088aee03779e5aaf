/** What roles look like, in light and dark. */

import type { EdgeKind, Role } from "./graph";
import type { TextRole } from "./scene";

export interface Look {
  fill: string;
  border: string;
}

export interface Theme {
  background: string;
  roles: Record<Role, Look>;
  /** Open boxes, by depth, in turns. */
  open: string[];
  openBorder: string;
  header: string;
  edges: Record<EdgeKind, string>;
  texts: Record<TextRole, string>;
  /** Colours of heat from 0 to 1, as red, green, blue. */
  heat: [number, number, number][];
}

export type ThemeName = "light" | "dark";

export const THEMES: Record<ThemeName, Theme> = {
  light: {
    background: "#ffffff",
    roles: {
      input: { fill: "#d3f3d8", border: "#3b9a57" },
      output: { fill: "#ffd9d6", border: "#cf5048" },
      op: { fill: "#ffffff", border: "#97a3b0" },
      params: { fill: "#dfe9fb", border: "#5a7fc8" },
      buffer: { fill: "#fdf0c8", border: "#bd9426" },
      constant: { fill: "#efe6fa", border: "#8f6cc4" },
      module: { fill: "#e6ebf1", border: "#6d7f95" },
      aten: { fill: "#f5f6f8", border: "#b4bdc8" },
      missing: { fill: "#ffd9d6", border: "#cf5048" },
      added: { fill: "#d3f3d8", border: "#3b9a57" },
      changed: { fill: "#fdf0c8", border: "#bd9426" },
    },
    open: ["#f6f8fa", "#eef1f5", "#e7ecf1"],
    openBorder: "#b9c3ce",
    header: "#dfe5ec",
    edges: { tensor: "#6f7c8a", memory: "#b07a1f", gradient: "#8448d6" },
    texts: { title: "#18212b", line: "#4d5a68", count: "#b3500b", shape: "#5d6a78", heading: "#253342" },
    heat: [[255, 255, 255], [255, 226, 138], [250, 146, 62], [205, 52, 40]],
  },
  dark: {
    background: "#14181d",
    roles: {
      input: { fill: "#1d4029", border: "#55b873" },
      output: { fill: "#4d2422", border: "#e57a72" },
      op: { fill: "#252c34", border: "#6b7887" },
      params: { fill: "#22344f", border: "#7299dd" },
      buffer: { fill: "#443813", border: "#d0aa45" },
      constant: { fill: "#352a49", border: "#a88bd6" },
      module: { fill: "#2b333d", border: "#8494a6" },
      aten: { fill: "#20262d", border: "#566270" },
      missing: { fill: "#4d2422", border: "#e57a72" },
      added: { fill: "#1d4029", border: "#55b873" },
      changed: { fill: "#443813", border: "#d0aa45" },
    },
    open: ["#191e24", "#1d232a", "#222931"],
    openBorder: "#404b57",
    header: "#2a323b",
    edges: { tensor: "#8795a4", memory: "#d3a04a", gradient: "#b58cf0" },
    texts: { title: "#e8edf2", line: "#a9b5c1", count: "#f0a25f", shape: "#97a4b2", heading: "#d3dce5" },
    heat: [[37, 44, 52], [92, 74, 30], [160, 84, 24], [214, 70, 48]],
  },
};

export function heatColour(theme: Theme, heat: number): string {
  const steps = theme.heat.length - 1;
  const at = Math.min(steps - 1, Math.floor(heat * steps));
  const part = heat * steps - at;
  const mixed = theme.heat[at].map((from, channel) => Math.round(from + (theme.heat[at + 1][channel] - from) * part));
  return `#${mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}
