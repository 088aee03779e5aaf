// Layout off the page's thread, so that the page answers while a large graph is laid out.

import { draw, supply, warm } from "./graph/drawing";
import { buffersOf } from "./scene/packed";
import type { Asked, Supplied } from "./graph/protocol";

const QUIET_MS = 30; // without a question: time to prepare the next answer, a piece at a time
let waiting: ReturnType<typeof setTimeout> | undefined;

function prepare(pieces: (() => void)[]): void {
  clearTimeout(waiting);
  const [first, ...others] = pieces;
  if (first) waiting = setTimeout(() => (first(), prepare(others)), QUIET_MS);
}

self.onmessage = (event: MessageEvent<Asked | Supplied>) => {
  if ("tables" in event.data) {
    supply(event.data);
    return;
  }
  try {
    const drawn = draw(event.data);
    self.postMessage(drawn, { transfer: buffersOf(drawn.scene) });
    if (event.data.wantsGraph) prepare([warm, warm]);
  } catch (error) {
    self.postMessage({ number: event.data.number, error: String(error) });
  }
};
