/** Which calls of a module are one when loops are rolled up: those that run the same layers. */

import type { HistoryData } from "./data";

/** For each call the first call it is one with. Calls of a module that share no layer stay apart: a ReLU that is
 * called in three places is drawn in three places. */
export function groupCalls(data: HistoryData): number[] {
  const { calls, ops } = data;
  const group = calls.module.map((_, call) => call);
  const find = (call: number): number => {
    while (group[call] !== call) call = group[call] = group[group[call]];
    return call;
  };
  const firstOf = new Map<string, number>();
  for (let op = 0; op < ops.num; op++) {
    if (ops.layer[op] < 0) continue;
    for (let call = ops.call[op]; call >= 0; call = calls.parent[call]) {
      const key = `${ops.layer[op]} ${calls.module[call]}`;
      const known = firstOf.get(key);
      if (known === undefined) firstOf.set(key, call);
      else {
        const [a, b] = [find(known), find(call)];
        if (a !== b) group[Math.max(a, b)] = Math.min(a, b);
      }
    }
  }
  return group.map((_, call) => find(call));
}
