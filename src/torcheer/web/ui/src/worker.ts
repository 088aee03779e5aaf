// Layout off the page's thread, so that the page answers while a large graph is laid out.

import { draw, supply } from "./graph/drawing";
import { buffersOf } from "./graph/packed";
import type { Asked, Supplied } from "./graph/protocol";

self.onmessage = (event: MessageEvent<Asked | Supplied>) => {
  if ("tables" in event.data) {
    supply(event.data);
    return;
  }
  try {
    const drawn = draw(event.data);
    self.postMessage(drawn, { transfer: buffersOf(drawn.scene) });
  } catch (error) {
    self.postMessage({ number: event.data.number, error: String(error) });
  }
};
