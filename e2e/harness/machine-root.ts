import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

/** A folder or file of this machine, and where a root shows it. */
export interface Mount {
  readonly from: string;
  readonly at: string;
  readonly readOnly?: boolean;
}

/** PATH of a process in it. */
export const SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TOP_FOLDERS = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/**
 * A root folder in place of the one of a Node.js image: this machine's programs and libraries, read-only, and in
 * /usr/local the Node.js that runs this test. Mounts are made in the mount namespace of each process, so that they are
 * gone with it, however it ends.
 */
export class MachineRoot {
  readonly path: string;
  readonly #mounts: Mount[] = [];

  constructor(path: string) {
    this.path = path;
    for (const folder of ["app", "dev", "etc", "proc", "root", "run", "tmp", "usr", "usr/local/bin"]) {
      mkdirSync(this.at(folder), { recursive: true, mode: 0o755 });
    }
    chmodSync(this.at("tmp"), 0o1777);
    for (const name of TOP_FOLDERS.filter((name) => existsSync(`/${name}`))) {
      if (lstatSync(`/${name}`).isSymbolicLink()) symlinkSync(readlinkSync(`/${name}`), this.at(name));
      else this.show(`/${name}`);
    }
    for (const name of readdirSync("/usr").filter((name) => name !== "local")) this.show(`/usr/${name}`);
    this.show(process.execPath, "/usr/local/bin/node");
  }

  /** Where a path inside is on this machine. */
  at(path: string): string {
    return join(this.path, path);
  }

  /** Shows a folder or a file to every process, read-only. */
  show(from: string, at = from): void {
    this.#makeMountPoint({ from, at });
    this.#mounts.push({ from, at, readOnly: true });
  }

  /**
   * Lines of a shell script for a mount namespace of its own, as root: they show everything and these mounts, and then
   * run the script's arguments. `proc` and `dev` are commands that mount these two; the path comes behind them.
   */
  script({ mounts, readOnly, proc, dev }: RootScript): string {
    for (const mount of mounts) this.#makeMountPoint(mount);
    return [
      `mount --bind ${this.path} ${this.path}`,
      ...[...this.#mounts, ...mounts].map(
        (mount) => `mount -o bind${mount.readOnly ? ",ro" : ""} ${mount.from} ${this.at(mount.at)}`,
      ),
      `${dev} ${this.at("dev")}`,
      `${proc} ${this.at("proc")}`,
      ...(readOnly ? [`mount -o remount,bind,ro ${this.path}`] : []),
      'exec "$@"',
    ].join("\n");
  }

  #makeMountPoint({ from, at }: Mount): void {
    const path = this.at(at);
    const isFolder = statSync(from).isDirectory();
    mkdirSync(isFolder ? path : dirname(path), { recursive: true });
    // A file can be mounted on a file only.
    if (!isFolder && !existsSync(path)) writeFileSync(path, "");
  }
}

interface RootScript {
  readonly mounts: readonly Mount[];
  /** The root itself; mounts say it for themselves. */
  readonly readOnly: boolean;
  readonly proc: string;
  readonly dev: string;
}
