// Builds the page into the folder given: `node build.mjs FOLDER`.
//
// page.js + page.css   the explorer, for the server and for one-file HTML
// worker.js            layout off the page's thread
// layout.js            the same layout and scene for Python's embedded engine; its exports are in `torcheer`
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { resolve } from "node:path";
import { build } from "vite";

const folder = process.argv[2];
if (!folder) throw new Error("node build.mjs FOLDER: the folder to write the built page to");

async function bundle(entry, name, format, global) {
  await build({
    configFile: false,
    root: import.meta.dirname,
    logLevel: "warn",
    plugins: [svelte({ configFile: false, emitCss: true })],
    define: { "process.env.NODE_ENV": '"production"' },
    build: {
      outDir: resolve(folder),
      emptyOutDir: false,
      target: name === "layout" ? "es2020" : "es2022",
      minify: name === "layout" ? false : "oxc",
      modulePreload: { polyfill: false },
      lib: { entry, formats: [format], name: global, fileName: () => `${name}.js`, cssFileName: name },
    },
  });
}

await bundle("src/main.ts", "page", "es", undefined);
await bundle("src/worker.ts", "worker", "iife", "worker");
await bundle("src/python.ts", "layout", "iife", "torcheer");
