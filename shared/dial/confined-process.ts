import { type ChildProcess, fork } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, join, sep } from "node:path";

/**
 * Starts a program of ours with nothing of our environment, and under Node's permission model: it may read its own file and
 * the packages that it names, with those that they depend on, and use the network. It cannot read or write any other file,
 * nor start processes, threads, addons or the inspector. A TypeScript source, which only a developer runs, is not confined:
 * its loader starts processes.
 */
export function forkConfined(program: string, packages: readonly string[]): ChildProcess {
  const isSource = extname(program) === ".ts";
  return fork(program, {
    env: {},
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    // Without this, fork() passes our own flags on, such as --inspect.
    execArgv: isSource ? process.execArgv : confinement(program, packages),
  });
}

function confinement(program: string, packages: readonly string[]): string[] {
  const known = (flag: string): string[] => (process.allowedNodeEnvironmentFlags.has(flag) ? [flag] : []);
  const [permission = "--experimental-permission"] = known("--permission"); // its name until Node 22.13
  const readable = [realpathSync(program), ...foldersOf(packages, program)];
  // Before Node 25 nothing restricts the network.
  return [permission, ...known("--allow-net"), ...readable.map((path) => `--allow-fs-read=${path}`)];
}

/** Where these packages are found from that file, and those that they depend on; of a symbolic link both ends. */
function foldersOf(packages: readonly string[], from: string, found = new Set<string>()): Set<string> {
  for (const name of packages) {
    const places = createRequire(from).resolve.paths(name) ?? [];
    const folder = places.map((place) => join(place, name)).find((place) => existsSync(join(place, "package.json")));
    if (folder === undefined || found.has(folder + sep)) continue;
    const manifest = join(realpathSync(folder), "package.json");
    found.add(folder + sep).add(realpathSync(folder) + sep);
    const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(readFileSync(manifest, "utf8"));
    foldersOf(Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies }), manifest, found);
  }
  return found;
}
