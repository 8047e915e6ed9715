/** Builds the status page for browsers (`ui/`): `node scripts/page.mjs` alone, or as a part of `npm run build`. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** The paragraphs of docs/errors.md that say what to do, as plain text by the code of an outcome. */
function nextSteps() {
  const sections = readFileSync(join(ROOT, "docs/errors.md"), "utf8").split(/^### /m).slice(1);
  const steps = sections.flatMap((section) => {
    const [, paragraph] = /^\*\*Do:\*\* ([\s\S]+?)(?:\n\n|$(?![\s\S]))/m.exec(section) ?? [];
    const text = paragraph
      ?.replace(/\s+/g, " ")
      .replace(/\[([^\]]+)\]\([^)]*\)/g, "$1")
      .replaceAll("`", "")
      .trim();
    return text === undefined ? [] : [[section.split("\n", 1)[0], text]];
  });
  return Object.fromEntries(steps);
}

const nextStepsModule = {
  name: "next-steps",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^culvert:next-steps$/ }, ({ path }) => ({ path, namespace: "next-steps" }));
    onLoad({ filter: /./, namespace: "next-steps" }, () => ({
      contents: `export const NEXT_STEPS = ${JSON.stringify(nextSteps())};`,
    }));
  },
};

/** Writes the page to this folder. It needs nothing from any other host. */
export async function buildPage(folder) {
  await build({
    absWorkingDir: ROOT,
    entryPoints: ["ui/main.tsx"],
    outdir: folder,
    bundle: true,
    format: "esm",
    minify: true,
    // The first browsers with all of the page's CSS and JavaScript.
    target: ["chrome123", "firefox128", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "eof",
    logLevel: "warning",
    plugins: [nextStepsModule],
  });
  // A copy would have the mode of the source, which a clone may keep from others.
  for (const file of ["index.html", "icon.svg"]) {
    writeFileSync(join(folder, file), readFileSync(join(ROOT, "ui", file)));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildPage(join(ROOT, "dist/ui"));
