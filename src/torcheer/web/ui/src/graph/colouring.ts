// What boxes can be coloured by: names as `historyGraph` takes them, and what the reader sees.

export const COLOURINGS: readonly (readonly [string, string])[] = [
  ["", "Colour: kind"],
  ["time", "Colour: time"],
  ["backward", "Colour: backward time"],
  ["memory", "Colour: memory"],
  ["params", "Colour: params"],
];
