// Colours that tie modules in columns to their boxes, and runs to their lines. Told apart in light and in dark.

export const TINTS = ["#1f77b4", "#d95f02", "#2a9d5c", "#b5407f", "#7b5fc7", "#a6761d", "#00838f", "#c0392b"] as const;

/** Of runs that are laid over another: none of the colours above, since their lines run over them. */
export const RUN_COLOURS = ["#e6176e", "#00a08a", "#f0a500", "#6f4bd8", "#1496e0", "#79a82b"] as const;
