/**
 * Builds dist/ after `npm ci` (the `prepare` script). Without the dev dependencies (`npm ci --omit=dev`) there is
 * no esbuild: an existing dist is kept, a missing one is said, and the installation goes on either way.
 */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";

// The build fails with an older one, at an export of Node that is missing. cli/main.ts asks the same of who runs it.
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`culvert: Node.js ${process.versions.node} is too old: install 20.19 or newer, then run npm ci again.`);
  process.exit(1);
}

if (isInstalled("esbuild")) await import("./build.mjs");
else if (!existsSync(new URL("../dist/cli/main.js", import.meta.url))) {
  console.error(
    "culvert: dist/ is missing and esbuild is not installed; run `npm ci` with dev dependencies to build it.",
  );
}

function isInstalled(name) {
  try {
    createRequire(import.meta.url).resolve(name);
    return true;
  } catch {
    return false;
  }
}
