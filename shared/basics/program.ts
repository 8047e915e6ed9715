import { existsSync, readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";

/** `.ts` among sources, `.js` in a build. */
const EXTENSION = extname(import.meta.filename);

/** The module of a thread, which keeps its place in a build (`ENTRIES` in scripts/build.mjs) and in the one file. */
const THREAD = `shared/dial/pac-worker${EXTENSION}`;

/** The folder of the sources, or of what is built from them. */
const PROGRAM_FOLDER = programFolder(import.meta.dirname);

/** Whether this program is one executable file (scripts/binary.mjs): Bun shows what is inside as files below here. */
export const IS_ONE_FILE = import.meta.dirname.startsWith("/$bunfs/");

/** The path of a module that a thread of its own runs, named as in the sources without an extension. */
export function programFile(name: string): string {
  return join(PROGRAM_FOLDER, name + EXTENSION);
}

/** The command that starts this program once more, in the same form: one file, a build, or sources. */
export function programCommand(): readonly [string, ...string[]] {
  return [process.execPath, ...(IS_ONE_FILE ? [] : [...process.execArgv, programFile("cli/main")])];
}

/** package.json and docs/ are beside the sources, and beside the folder of a build. In the one file all is together. */
export function foldersAroundProgram(): readonly string[] {
  return [PROGRAM_FOLDER, dirname(PROGRAM_FOLDER)];
}

function programFolder(from: string): string {
  const isFound = existsSync(join(from, THREAD));
  return isFound || from === dirname(from) ? from : programFolder(dirname(from));
}

/** Versions of the running program. */
interface BuildInfo {
  readonly version: string;
  /** The git commit that was built, with the suffix `-dirty` if files had been changed; or `unknown`. */
  readonly revision: string;
  /** Version of Node.js, without a `v`; on Bun the one that it stands in for, and behind it `+bun.` and Bun's own. */
  readonly node: string;
}

let known: BuildInfo | undefined;

/** Version and revision of this build, and the Node.js that runs it. */
export function buildInfo(): BuildInfo {
  known ??= { version: packageVersion(), revision: revision() ?? "unknown", node: nodeVersion() };
  return known;
}

function nodeVersion(): string {
  const { bun, node } = process.versions;
  return bun === undefined ? node : `${node}+bun.${bun}`;
}

export function version(): string {
  return buildInfo().version;
}

/** scripts/revision.mjs writes the revision into dist/; sources that run without a build have none. */
function revision(): string | undefined {
  const { revision } = fieldsIn(join(PROGRAM_FOLDER, "revision.json"));
  return typeof revision === "string" && revision !== "" ? revision : undefined;
}

/** The name of the package. `culvert` on the public registry is another project. */
const NAME = "@culvert-gateway/culvert";

/** The version in package.json, which is in the parent folder of `dist` and of the sources. */
function packageVersion(): string {
  const versions = foldersAroundProgram().map(versionIn);
  return versions.find((found) => found !== undefined) ?? "unknown";
}

function versionIn(folder: string): string | undefined {
  const { name, version } = fieldsIn(join(folder, "package.json"));
  return name === NAME && typeof version === "string" ? version : undefined;
}

/** The fields of a JSON file; none if it is missing or broken. */
function fieldsIn(path: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(readFileSync(path, "utf8")));
  } catch {
    return {};
  }
}
