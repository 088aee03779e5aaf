// Colours that only the page has: what is selected, hovered, found, and where its edges lead.

export type MarkColours = Record<"select" | "hover" | "source" | "user" | "found", string>;

export const MARKS: Record<"light" | "dark", MarkColours> = {
  light: { select: "#1f5fd1", hover: "#7a8699", source: "#1f5fd1", user: "#c2570c", found: "#d6336c" },
  dark: { select: "#82b1ff", hover: "#8c98aa", source: "#82b1ff", user: "#ff9d57", found: "#ff7ba9" },
};
