// Colours that tie modules in columns to their boxes, and runs to their lines. Told apart in light and in dark.

export const TINTS = ["#1f77b4", "#d95f02", "#2a9d5c", "#b5407f", "#7b5fc7", "#a6761d", "#00838f", "#c0392b"] as const;
