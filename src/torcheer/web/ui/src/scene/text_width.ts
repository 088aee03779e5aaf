/** How wide texts are, without a DOM: the widths of Arimo, which are those of Arial, Helvetica and Liberation Sans. */

/** In thousandths of the size, from the space to the tilde. */
const REGULAR = [
  278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
  556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
  667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556,
  556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];
const BOLD = [
  278, 333, 474, 556, 556, 889, 722, 238, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
  556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278, 556, 722, 611, 833, 722, 778,
  667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584, 556, 333, 556, 611, 556, 611, 556, 333, 611,
  611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556, 333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
];
const OTHERS: Record<string, number> = { "×": 584, "·": 333, "…": 1000, "→": 1000, "µ": 576, "–": 556 };
/** Letters of other alphabets are rarely wider than this; East Asian ones are as wide as the line is high. */
const OTHER = 640;
const FULL = 1000;

export function textWidth(text: string, size: number, bold = false): number {
  const widths = bold ? BOLD : REGULAR;
  let sum = 0;
  for (const char of text) {
    const code = char.codePointAt(0)!;
    sum += code >= 32 && code < 127 ? widths[code - 32] : (OTHERS[char] ?? (code >= 0x1100 ? FULL : OTHER));
  }
  return (sum * size) / 1000;
}

/** The text, or its beginning with "…" where it is wider than `most`. */
export function fitText(text: string, size: number, bold: boolean, most: number): string {
  if (textWidth(text, size, bold) <= most) return text;
  const chars = [...text];
  let [low, high] = [0, chars.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(chars.slice(0, middle).join("") + "…", size, bold) <= most) low = middle;
    else high = middle - 1;
  }
  return chars.slice(0, low).join("").trimEnd() + "…";
}
