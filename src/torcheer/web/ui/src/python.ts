// What Python's embedded engine can call: built into layout.js, as properties of the global `torcheer`.
export const version = 1;
