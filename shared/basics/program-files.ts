import { existsSync } from "node:fs";
import { dirname, extname, join } from "node:path";

/** `.ts` among sources, `.js` in a build. */
const EXTENSION = extname(import.meta.filename);

/** The folder of the sources, or of what is built from them: the folder with cli/main. */
export const PROGRAM_FOLDER = programFolder(import.meta.dirname);

/**
 * The path of a module that a process of its own runs, named as in the sources without an extension. The build
 * (scripts/build.mjs) joins modules to few files, and keeps those of `ENTRIES` at their place.
 */
export function programFile(name: string): string {
  return join(PROGRAM_FOLDER, name + EXTENSION);
}

/** package.json and docs/ are beside the sources, and beside the folder of a build. */
export function foldersAroundProgram(): readonly string[] {
  return [PROGRAM_FOLDER, dirname(PROGRAM_FOLDER)];
}

function programFolder(from: string): string {
  const isFound = existsSync(join(from, `cli/main${EXTENSION}`));
  return isFound || from === dirname(from) ? from : programFolder(dirname(from));
}
