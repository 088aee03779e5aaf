// Light or dark: as the system has it, unless the reader chose.

const KEY = "torcheer.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

class ThemeChoice {
  isDark = $state(system.matches);

  constructor() {
    const chosen = read();
    if (chosen) this.isDark = chosen === "dark";
    system.addEventListener("change", (event) => {
      if (!read()) this.isDark = event.matches;
    });
  }

  toggle(): void {
    this.isDark = !this.isDark;
    try {
      localStorage.setItem(KEY, this.isDark ? "dark" : "light");
    } catch {
      // A frame without an origin of its own has no storage; the choice then lasts as long as the page.
    }
  }
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const theme = new ThemeChoice();
