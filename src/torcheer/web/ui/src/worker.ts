// Layout off the page's thread, so that the page answers while a large graph is laid out.

import { draw } from "./graph/drawing";
import type { Asked } from "./graph/protocol";

self.onmessage = (event: MessageEvent<Asked>) => {
  try {
    self.postMessage(draw(event.data));
  } catch (error) {
    self.postMessage({ number: event.data.number, error: String(error) });
  }
};
