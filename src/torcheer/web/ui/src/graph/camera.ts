// Where the reader looks: a point of the scene at the screen's top left, and a zoom. All pure.

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Size {
  width: number;
  height: number;
}

const LEAST_ZOOM = 0.0005;
const MOST_ZOOM = 4;
const MARGIN = 24;

export function toScene(camera: Camera, x: number, y: number): { x: number; y: number } {
  return { x: camera.x + x / camera.zoom, y: camera.y + y / camera.zoom };
}

/** Zoom by a factor and keep what is under a point of the screen there. */
export function zoomed(camera: Camera, factor: number, x: number, y: number): Camera {
  const zoom = Math.min(MOST_ZOOM, Math.max(LEAST_ZOOM, camera.zoom * factor));
  const fixed = toScene(camera, x, y);
  return { x: fixed.x - x / zoom, y: fixed.y - y / zoom, zoom };
}

export function moved(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.zoom, y: camera.y - dy / camera.zoom };
}

/** All of a rectangle, in the middle of the screen. */
export function fitted(rect: Rect, screen: Size, mostZoom = 1.25): Camera {
  const zoom = Math.min(
    mostZoom,
    (screen.width - 2 * MARGIN) / Math.max(rect.width, 1),
    (screen.height - 2 * MARGIN) / Math.max(rect.height, 1),
  );
  const safe = Math.max(zoom, LEAST_ZOOM);
  return {
    x: rect.x + rect.width / 2 - screen.width / 2 / safe,
    y: rect.y + rect.height / 2 - screen.height / 2 / safe,
    zoom: safe,
  };
}

/** The start of a long picture at a size that can be read, rather than all of it at one that cannot. */
export function opened(rect: Rect, screen: Size, leastZoom: number): Camera {
  const whole = fitted(rect, screen, 1);
  if (whole.zoom >= leastZoom) return whole;
  const wide = Math.min(1, (screen.width - 2 * MARGIN) / Math.max(rect.width, 1));
  const zoom = Math.max(leastZoom, Math.min(wide, 1));
  return { x: rect.x + rect.width / 2 - screen.width / 2 / zoom, y: rect.y - MARGIN / zoom, zoom };
}

const READABLE_ZOOM = 0.25; // below it names are a few pixels high
const MUCH_WIDER = 3;

/**
 * All of a rectangle; of a long and narrow one, which would be a thin column, the part looked at, as wide as the screen.
 * `wantsAll`: the column all the same.
 */
export function fittedReadably(camera: Camera, rect: Rect, screen: Size, wantsAll: boolean): Camera {
  const whole = fitted(rect, screen);
  const wide = opened(rect, screen, Math.min(1, (screen.width - 2 * MARGIN) / Math.max(rect.width, 1)));
  const isColumn = whole.zoom < READABLE_ZOOM && wide.zoom > MUCH_WIDER * whole.zoom;
  if (!isColumn || wantsAll) return whole;
  const height = screen.height / wide.zoom;
  const top = camera.y + screen.height / camera.zoom / 2 - height / 2; // what is in the middle stays there
  const last = rect.y + rect.height + MARGIN / wide.zoom - height;
  return { ...wide, y: Math.min(Math.max(top, wide.y), Math.max(last, wide.y)) };
}

/** A camera that has a rectangle in view: the same one if it is, else moved, and nearer if it would be too small. */
export function showing(camera: Camera, rect: Rect, screen: Size, leastZoom = 0.35): Camera {
  const zoom = Math.max(camera.zoom, leastZoom);
  const view = { x: camera.x, y: camera.y, width: screen.width / zoom, height: screen.height / zoom };
  const isInside =
    zoom === camera.zoom &&
    rect.x >= view.x &&
    rect.y >= view.y &&
    rect.x + rect.width <= view.x + view.width &&
    rect.y + rect.height <= view.y + view.height;
  if (isInside) return camera;
  return {
    x: rect.x + Math.min(rect.width, view.width) / 2 - view.width / 2,
    y: rect.y + Math.min(rect.height, view.height) / 2 - view.height / 2,
    zoom,
  };
}
