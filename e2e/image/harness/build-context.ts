import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

interface Pattern {
  readonly text: string;
  readonly matches: RegExp;
  /** It begins with `!`: what it matches is sent after all. */
  readonly isException: boolean;
}

/** The files of a folder that `.dockerignore` lets through to the builder. */
export class BuildContext {
  readonly #folder: string;
  readonly #patterns: readonly Pattern[];

  constructor(folder: string) {
    this.#folder = folder;
    const lines = readFileSync(join(folder, ".dockerignore"), "utf8").split("\n");
    this.#patterns = lines.filter((line) => line !== "" && !line.startsWith("#")).map(patternOf);
  }

  /** The last pattern counts that matches the path or a folder above it. */
  isSent(path: string): boolean {
    const steps = path.split("/");
    const ways = steps.map((_, i) => steps.slice(0, i + 1).join("/"));
    const last = this.#patterns.findLast(({ matches }) => ways.some((way) => matches.test(way)));
    return last?.isException ?? true;
  }

  /** Copies them, with the modes of a clone that was made under umask 077. */
  send(destination: string, inside = ""): void {
    mkdirSync(join(destination, inside), { mode: 0o700, recursive: true });
    for (const entry of readdirSync(join(this.#folder, inside), { withFileTypes: true })) {
      const path = inside === "" ? entry.name : `${inside}/${entry.name}`;
      if (entry.isDirectory()) {
        if (this.#mayHold(path)) this.send(destination, path);
      } else if (this.isSent(path)) {
        copyFileSync(join(this.#folder, path), join(destination, path));
        chmodSync(join(destination, path), statSync(join(this.#folder, path)).mode & 0o700);
      }
    }
  }

  #mayHold(path: string): boolean {
    return (
      this.isSent(path) || this.#patterns.some(({ isException, text }) => isException && text.startsWith(`${path}/`))
    );
  }
}

/** As Go's filepath.Match has them, and `**` for any number of folders. */
function patternOf(line: string): Pattern {
  const isException = line.startsWith("!");
  const text = line.slice(isException ? 1 : 0);
  const literal = (part: string): string => part.replace(/[.+^$()|[\]{}\\?]/g, "\\$&");
  const inOneFolder = (part: string): string => part.split("*").map(literal).join("[^/]*");
  const expression = text.split("**/").map(inOneFolder).join("(?:.*/)?");
  return { text, isException, matches: new RegExp(`^${expression}$`) };
}
