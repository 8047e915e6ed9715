import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const PREFIX = ".tests-";

/**
 * Compiles all sources under `root` into a folder beside them, from where they find package.json and node_modules as
 * from the build, and names that folder, or nothing where they cannot be parsed. Types are not checked here.
 */
export function compile(root) {
  removeAbandoned(root);
  const folder = `${PREFIX}${process.pid}`;
  const manifest = createRequire(import.meta.url).resolve("typescript/package.json");
  const { bin } = createRequire(import.meta.url)(manifest);
  const flags = ["--noCheck", "--noEmit", "false", "--inlineSourceMap", "--rootDir", ".", "--outDir", folder];
  const { status } = spawnSync(process.execPath, [join(dirname(manifest), bin.tsc), ...flags], {
    cwd: root,
    stdio: "inherit",
  });
  if (status === 0) return folder;
  remove(root, folder);
  return undefined;
}

export function remove(root, folder) {
  rmSync(join(root, folder), { recursive: true, force: true });
}

/** Removes folders of runs that were killed. */
function removeAbandoned(root) {
  for (const name of readdirSync(root)) {
    if (name.startsWith(PREFIX) && !runs(Number(name.slice(PREFIX.length)))) remove(root, name);
  }
}

function runs(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === "EPERM";
  }
}
