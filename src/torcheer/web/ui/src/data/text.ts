// The only place of the page where numbers become text; the same forms as torcheer's units.py.

export function bytesText(bytes: number | null | undefined): string {
  if (bytes == null) return "unknown";
  if (bytes < 1024) return `${bytes} B`;
  let size = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    size /= 1024;
    if (size < 1024 || unit === "TiB") return `${size.toFixed(1)} ${unit}`;
  }
  return "";
}

export function timeText(ns: number | null | undefined): string {
  if (ns == null) return "unknown";
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e9).toFixed(3)} s`;
}

export function countText(count: number | null | undefined): string {
  return count == null ? "unknown" : count.toLocaleString("en-US");
}

/** 1234567 → "1.2 M" */
export function shortCount(count: number | null | undefined): string {
  if (count == null) return "unknown";
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (Math.abs(count) >= limit) return `${(count / limit).toFixed(1)} ${unit}`;
  }
  return String(count);
}

export function shapeText(shape: readonly number[]): string {
  return shape.length ? shape.map((size) => (size < 0 ? "?" : size)).join("×") : "scalar";
}

/** A measured number with four significant digits; servers write those JSON lacks as "nan", "inf", "-inf". */
export function numberText(value: number | string | null | undefined): string {
  if (value == null) return "unknown";
  if (typeof value === "string") return value === "nan" ? "NaN" : value === "inf" ? "∞" : value === "-inf" ? "−∞" : value;
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export function percentText(share: number): string {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}
