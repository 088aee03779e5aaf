// Asks the worker for drawings. Where a worker cannot be started (some frames forbid it), the page draws itself.

import type { Asked, Drawn, Supplied } from "./protocol";
import { draw, supply } from "./drawing";

type Answer = { resolve: (drawn: Drawn) => void; reject: (error: Error) => void };

class Drawer {
  private worker: Worker | null = null;
  private isStarted = false;
  private number = 0;
  private waiting = new Map<number, { asked: Asked; answer: Answer }>();

  ask(request: Omit<Asked, "number">): Promise<Drawn> {
    const asked: Asked = { ...request, number: ++this.number };
    this.start();
    return new Promise((resolve, reject) => {
      if (this.worker === null) {
        resolve(draw(asked));
        return;
      }
      this.waiting.set(asked.number, { asked, answer: { resolve, reject } });
      this.worker.postMessage(asked);
    });
  }

  supply(supplied: Supplied): void {
    if (this.worker === null) supply(supplied);
    else this.worker.postMessage(supplied);
  }

  /** Started before there is anything to draw, so that nothing waits for it. */
  start(): void {
    if (this.isStarted) return;
    this.isStarted = true;
    try {
      this.worker = new Worker(address());
    } catch {
      return;
    }
    this.worker.onmessage = (event: MessageEvent<Drawn>) => {
      const waiting = this.waiting.get(event.data.number);
      this.waiting.delete(event.data.number);
      if (event.data.error) waiting?.answer.reject(new Error(event.data.error));
      else waiting?.answer.resolve(event.data);
    };
    this.worker.onerror = () => {
      this.worker = null;
      for (const { asked, answer } of this.waiting.values()) answer.resolve(draw(asked));
      this.waiting.clear();
    };
  }
}

/** The worker's script: a part of the page where that is one file, else a file beside it. */
function address(): string {
  const script = document.getElementById("worker")?.textContent;
  return script ? URL.createObjectURL(new Blob([script], { type: "text/javascript" })) : "worker.js";
}

export const drawer = new Drawer();
