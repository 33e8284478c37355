// plotly.js with the kinds of traces that figures of the atlas use; settings are those of plotly.js' own build.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { build } from "esbuild";

const require = createRequire(import.meta.url);
const { environmentPlugin } = require("esbuild-plugin-environment");
const { glsl } = require("esbuild-plugin-glsl");
const css = require("esbuild-plugin-inline-css");
const TRACES = ["bar", "heatmap", "scatter3d"]; // "scatter" is in every bundle

const { version } = JSON.parse(readFileSync("node_modules/plotly.js/package.json"));
const entry = `const Plotly = require("plotly.js/lib/core");
Plotly.register([${TRACES.map((name) => `require("plotly.js/lib/${name}")`)}]);
module.exports = Plotly;`;

await build({
  stdin: { contents: entry, resolveDir: "." }, outfile: "plotly.min.js", bundle: true, minify: true, format: "iife",
  globalName: "Plotly", target: "es2018", legalComments: "eof",
  banner: { js: `/**\n* plotly.js v${version}, traces ${["scatter", ...TRACES].join(", ")}\n* Copyright Plotly, Inc.\n* Licensed under the MIT license\n*/` },
  plugins: [css(), glsl({ minify: true }), environmentPlugin({ NODE_DEBUG: false })],
  alias: { regl: "@plotly/regl", stream: "stream-browserify" }, define: { global: "window", "define.amd": "false" },
});
