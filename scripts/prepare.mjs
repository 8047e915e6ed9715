/**
 * Builds dist/ after `npm ci` (the `prepare` script). Without the dev dependencies (`npm ci --omit=dev`) there is
 * no compiler: an existing dist is kept, a missing one is said, and the installation goes on either way.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const main = join(root, "dist/cli/main.js");
const compiler = findCompiler();

if (compiler === undefined) {
  if (!existsSync(main)) {
    console.error(
      "culvert: dist/ is missing and TypeScript is not installed; run `npm ci` with dev dependencies to build it.",
    );
  }
} else {
  // What a renamed source left behind would be shipped and run.
  rmSync(join(root, "dist"), { recursive: true, force: true });
  const { status, error } = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], {
    cwd: root,
    stdio: "inherit",
  });
  if (error !== undefined) console.error(`culvert: the compiler did not start: ${error.message}`);
  if (existsSync(main)) chmodSync(main, 0o755);
  await import("./revision.mjs");
  process.exitCode = status ?? 1;
}

function findCompiler() {
  try {
    const manifest = createRequire(import.meta.url).resolve("typescript/package.json");
    const { bin } = createRequire(import.meta.url)("typescript/package.json");
    return join(dirname(manifest), typeof bin === "string" ? bin : bin.tsc);
  } catch {
    return undefined;
  }
}
