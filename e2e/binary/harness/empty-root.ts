import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { TempDir } from "../../harness/temp.ts";
import { muslFiles } from "./musl.ts";

/** A root with `/culvert`, the files of one libc, `/tmp` and `/proc`, and nothing else. */
export class EmptyRoot implements Disposable {
  readonly #dir = new TempDir();
  readonly path = this.#dir.path;
  /** The program, for a command line that `inside` precedes. */
  readonly culvert = `chroot ${this.path} /culvert`;
  /** Words in front of a command that sees this root's /proc; it is not in the root itself. */
  readonly inside = ["unshare", "--mount", "sh", "-c", `mount -t proc proc ${this.path}/proc && exec "$@"`, "sh"];

  constructor(program: string, libraries: ReadonlyMap<string, string>) {
    for (const folder of ["proc", "tmp"]) mkdirSync(join(this.path, folder));
    for (const [at, from] of [["/culvert", program] as const, ...libraries]) {
      mkdirSync(dirname(join(this.path, at)), { recursive: true });
      copyFileSync(from, join(this.path, at));
    }
  }

  /** Runs a command of the program, and returns its stdout. */
  run(...args: readonly string[]): string {
    const [program = "", ...line] = [...this.inside, "chroot", this.path, "/culvert", ...args];
    return execFileSync(program, line, { encoding: "utf8", env: {}, timeout: 60_000 });
  }

  [Symbol.dispose](): void {
    this.#dir[Symbol.dispose]();
  }
}

/** The libraries of this machine that a program is linked with, by where it looks for them. */
export function glibcFiles(program: string): ReadonlyMap<string, string> {
  const lines = execFileSync("ldd", [program], { encoding: "utf8" }).split("\n");
  const paths = lines.flatMap((line) => /(\/\S+) \(0x/.exec(line)?.[1] ?? []);
  return new Map(paths.map((path) => [path, path]));
}

/** musl, and of GCC's libraries those that Bun's program for musl is linked with. */
export function muslLibraries(): ReadonlyMap<string, string> {
  return new Map(
    muslFiles().map((path) => {
      const name = basename(path);
      return [`/lib/${name.startsWith("libstdc++") ? "libstdc++.so.6" : name}`, path];
    }),
  );
}
