/**
 * Makes one executable file for Linux of dist/, with Bun inside (docs/decisions/0056-one-file.md):
 *
 *   npm run build:binary -- [PLATFORM…] [--runtime FILE]
 *
 * A platform is linux-x64, linux-arm64, linux-x64-musl or linux-arm64-musl; without any it is this machine's. Bun
 * fetches its program for another one from the npm registry, or it is FILE: bin/bun of the package @oven/bun-linux-….
 * The same dist/ gives the same bytes.
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const BUN = join(ROOT, "node_modules/bun/bin/bun.exe");
export const PLATFORMS = ["linux-x64", "linux-arm64", "linux-x64-musl", "linux-arm64-musl"];

/** Neither settings nor packages are taken from the folder that the file is started in. */
const ALONE = ["--no-compile-autoload-dotenv", "--no-compile-autoload-bunfig"];

/** Writes `culvert` to a folder, and returns its path. Without a runtime it is made for this machine. */
export function buildBinary({ folder, platform, runtime }) {
  const file = join(folder, "culvert"); // by its name the program knows how it was called
  const staging = mkdtempSync(join(tmpdir(), "culvert-binary-"));
  try {
    // Of a single file only the name is kept, of a folder all below it.
    mkdirSync(join(staging, "docs"));
    copyFileSync(join(ROOT, "docs/errors.md"), join(staging, "docs/errors.md"));
    const assets = ["dist/ui", "dist/revision.json", "package.json", "node_modules/quickjs-wasi/quickjs.wasm"]
      .map((path) => join(ROOT, path))
      .filter((path) => existsSync(path))
      .concat(join(staging, "docs"));
    mkdirSync(folder, { recursive: true });
    const { status } = spawnSync(
      BUN,
      [
        ...["build", "--compile", ...ALONE, `--target=bun${platform === undefined ? "" : `-${platform}`}`],
        ...(runtime === undefined ? [] : [`--compile-executable-path=${runtime}`]),
        // Compiled code of all modules, which are read one by one when they are needed.
        ...["--bytecode", "--splitting", "--format=esm"],
        ...assets.map((path) => `--asset=${path}`),
        ...["--root=dist", `--outfile=${file}`, "dist/cli/main.js", "dist/shared/dial/pac-worker.js"],
      ],
      { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] },
    );
    if (status !== 0) throw new Error(`bun build ended with ${status}`);
  } finally {
    rmSync(staging, { recursive: true });
  }
  return file;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { runtime: { type: "string" } } });
  const unknown = positionals.find((platform) => !PLATFORMS.includes(platform));
  if (unknown !== undefined) {
    console.error(`There is no platform ${unknown}: use ${PLATFORMS.join(", ")}`);
    process.exit(2);
  }
  await import("./build.mjs");
  for (const platform of positionals.length === 0 ? [undefined] : positionals) {
    const folder = join(ROOT, "dist-binary", platform ?? "");
    console.log(buildBinary({ folder, platform, runtime: values.runtime }));
  }
}
