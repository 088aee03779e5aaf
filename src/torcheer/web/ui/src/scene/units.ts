/** Numbers as text, in the words of Python's `torcheer.units`. */

export function bytesText(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let at = -1;
  do size /= 1024;
  while (++at < units.length - 1 && size >= 1024);
  return `${size.toFixed(1)} ${units[at]}`;
}

export function secondsText(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(3)} s`;
}

export function countText(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function flopsText(count: number): string {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}FLOPs`;
  }
  return `${count} FLOPs`;
}
