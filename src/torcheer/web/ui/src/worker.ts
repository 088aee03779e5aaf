// Layout off the page's thread, so that the page answers while a large graph is laid out.

import { draw, supply, warm } from "./graph/drawing";
import { buffersOf } from "./graph/packed";
import type { Asked, Supplied } from "./graph/protocol";

const QUIET_MS = 60; // without a question: time to prepare the next answer
const TURNS = 3;
let waiting: ReturnType<typeof setTimeout> | undefined;

function warmSoon(turns: number): void {
  clearTimeout(waiting);
  if (turns) waiting = setTimeout(() => (warm(), warmSoon(turns - 1)), QUIET_MS);
}

self.onmessage = (event: MessageEvent<Asked | Supplied>) => {
  if ("tables" in event.data) {
    supply(event.data);
    warmSoon(TURNS);
    return;
  }
  try {
    const drawn = draw(event.data);
    self.postMessage(drawn, { transfer: buffersOf(drawn.scene) });
    if (event.data.wantsGraph) warmSoon(TURNS);
  } catch (error) {
    self.postMessage({ number: event.data.number, error: String(error) });
  }
};
