// The reader's place in the address: what is shown, entered, selected and opened. Links and the back button keep it.

export type Place = Record<string, string>;

const LONGEST = 4000; // characters of one entry: beyond, an address is no longer passed on whole

export function readPlace(): Place {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Put changes into the address; "" removes an entry. A step is what the back button goes back over. */
export function writePlace(changes: Place, isStep = false): void {
  const place = { ...readPlace(), ...changes };
  for (const [name, value] of Object.entries(place)) if (!value || value.length > LONGEST) delete place[name];
  const text = new URLSearchParams(place).toString();
  const address = text ? `#${text}` : location.pathname.split("/").pop() + location.search + "#";
  if (text === location.hash.slice(1)) return;
  try {
    if (isStep) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  } catch {
    // A frame without an origin of its own (a notebook's output) has no address to write to.
  }
}

export function onPlace(callback: (place: Place) => void): () => void {
  const listener = () => callback(readPlace());
  window.addEventListener("popstate", listener);
  return () => window.removeEventListener("popstate", listener);
}
