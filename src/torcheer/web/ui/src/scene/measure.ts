/** How large a box is, and where its texts go: so that no text leaves its box or meets another. */

import type { Item } from "./graph";
import type { Text, TextRole } from "./scene";
import { fitText, textWidth } from "./text_width";

export interface Size {
  width: number;
  height: number;
  /** Of that height, the strip below the box where its lines begin and the shape is written. */
  below: number;
  /** The texts of the box when it is drawn that wide. */
  texts: (width: number) => Text[];
}

export const TITLE_SIZE = 12;
export const LINE_SIZE = 10;
const SHAPE_SIZE = 9.5;
const TITLE_HEIGHT = 15;
const LINE_HEIGHT = 12.5;
const PAD_X = 10;
const PAD_Y = 6;
const NARROWEST = 72;
const WIDEST = 300;
const STRIP = 14;
/** Widths are rounded up to this, so that blocks with other numbers in their labels are still equal. */
const STEP = 12;

/** With `turned`, width and height change places, since the layout's downwards is then to the right. */
export function measure(item: Item, isOpen: boolean, hasOut: boolean, turned: boolean): Size {
  return isOpen ? measureHeading(item) : measureNode(item, hasOut, turned);
}

const countOf = (item: Item) => (item.count > 1 ? `×${item.count}` : "");

function measureHeading(item: Item): Size {
  const count = countOf(item);
  const title = fitText(item.title, TITLE_SIZE, true, WIDEST);
  const kind = fitText(item.lines[0] ?? "", LINE_SIZE, false, WIDEST / 2);
  const titleWidth = textWidth(title, TITLE_SIZE, true);
  const kindWidth = textWidth(kind, LINE_SIZE);
  const countWidth = count ? textWidth(count, TITLE_SIZE, true) + 10 : 0;
  const width = roundUp(titleWidth + kindWidth + countWidth + 3 * PAD_X);
  const texts = (seen: number) => {
    const found = [text(PAD_X, 15, title, TITLE_SIZE, true, "left", "heading")];
    if (kind) found.push(text(PAD_X + titleWidth + 7, 15, kind, LINE_SIZE, false, "left", "line"));
    if (count) found.push(text(seen - PAD_X, 15, count, TITLE_SIZE, true, "right", "count"));
    return found;
  };
  return { width, height: 0, below: 0, texts };
}

function measureNode(item: Item, hasOut: boolean, turned: boolean): Size {
  const count = countOf(item);
  const countWidth = count ? textWidth(count, TITLE_SIZE, true) + 6 : 0;
  const title = fitText(item.title, TITLE_SIZE, true, WIDEST - countWidth);
  const lines = item.lines.map((line) => fitText(line, LINE_SIZE, false, WIDEST));
  const out = hasOut ? fitText(item.out, SHAPE_SIZE, false, WIDEST / 2) : "";
  const outWidth = out ? textWidth(out, SHAPE_SIZE) : 0;
  const titleWidth = textWidth(title, TITLE_SIZE, true) + countWidth;
  const widest = Math.max(titleWidth, ...lines.map((line) => textWidth(line, LINE_SIZE)));
  // The shape stands to the right of the line, which leaves in the middle.
  const least = out && !turned ? 2 * (outWidth + 8) : 0;
  const width = roundUp(Math.max(NARROWEST, widest + 2 * PAD_X, least));
  const height = 2 * PAD_Y + TITLE_HEIGHT + lines.length * LINE_HEIGHT;
  const below = out ? (turned ? outWidth + 12 : STRIP) : 0;
  const texts = () => {
    const middle = width / 2;
    const found = [text(middle - countWidth / 2, PAD_Y + 12, title, TITLE_SIZE, true, "middle", "title")];
    if (count) found.push(text(middle + titleWidth / 2, PAD_Y + 12, count, TITLE_SIZE, true, "right", "count"));
    lines.forEach((line, at) => {
      const y = PAD_Y + TITLE_HEIGHT + 9.5 + at * LINE_HEIGHT;
      found.push(text(middle, y, line, LINE_SIZE, false, "middle", "line"));
    });
    if (out && turned) found.push(text(width + 5, height / 2 - 4, out, SHAPE_SIZE, false, "left", "shape"));
    else if (out) found.push(text(middle + 5, height + 10.5, out, SHAPE_SIZE, false, "left", "shape"));
    return found;
  };
  return turned ? { width: height, height: width + below, below, texts } : { width, height: height + below, below, texts };
}

const roundUp = (width: number) => Math.ceil(width / STEP) * STEP;

function text(
  x: number, y: number, content: string, size: number, bold: boolean, align: Text["align"], role: TextRole,
): Text {
  return { x, y, text: content, size, bold, align, role, width: textWidth(content, size, bold) };
}
