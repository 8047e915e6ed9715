import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  symlinkSync,
} from "node:fs";
import { dirname, join } from "node:path";

/** A folder or file of this machine, and where a root shows it. */
export interface Mount {
  readonly from: string;
  readonly at: string;
  readonly readOnly?: boolean;
}

const SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TOP_FOLDERS = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
const NETWORK_FILES = ["hosts", "resolv.conf", "nsswitch.conf", "ld.so.cache", "passwd", "group", "ssl"];

/**
 * A root folder in place of the one of a Node.js image: this machine's programs and libraries, read-only, and in
 * /usr/local the Node.js that runs this test. Mounts are made in the mount namespace of each command, so that they are
 * gone with it, however it ends.
 */
export class Root {
  readonly path: string;
  readonly #mounts: Mount[] = [];

  constructor(path: string) {
    this.path = path;
    for (const folder of ["app", "dev", "etc", "proc", "root", "run", "tmp", "usr", "usr/local/bin"]) {
      mkdirSync(this.at(folder), { recursive: true, mode: 0o755 });
    }
    for (const name of TOP_FOLDERS.filter((name) => existsSync(`/${name}`))) {
      if (lstatSync(`/${name}`).isSymbolicLink()) symlinkSync(readlinkSync(`/${name}`), this.at(name));
      else this.#show(`/${name}`);
    }
    for (const name of readdirSync("/usr").filter((name) => name !== "local")) this.#show(`/usr/${name}`);
    for (const name of NETWORK_FILES.filter((name) => existsSync(`/etc/${name}`))) {
      cpSync(`/etc/${name}`, this.at(`etc/${name}`), { recursive: true, verbatimSymlinks: true });
    }
    cpSync(process.execPath, this.at("usr/local/bin/node"));
    this.#showNpm();
  }

  /** Where a path inside is on this machine. */
  at(path: string): string {
    return join(this.path, path);
  }

  /**
   * The command line of a process that is process 1 of its own process namespace in this root. Its first line on stdout
   * is `pid N`, by which this machine knows it. With an owner it has that user, no capabilities and a read-only root.
   */
  commandLine({ argv, env, folder, mounts = [], owner }: RootCommand): string[] {
    const all = [...this.#mounts, ...mounts];
    for (const { from, at } of mounts) makeMountPoint(from, this.at(at));
    const script = [
      "set -e",
      "umask 022",
      "read -r pid _ < /proc/self/stat",
      'echo "pid $pid"',
      `mount --bind ${this.path} ${this.path}`,
      ...all.map(({ from, at, readOnly }) => `mount -o bind${readOnly ? ",ro" : ""} ${from} ${this.at(at)}`),
      `mount --bind /dev ${this.at("dev")}`,
      `mount -t proc proc ${this.at("proc")}`,
      ...(owner === undefined ? [] : [`mount -o remount,bind,ro ${this.path}`]),
      'exec "$@"',
    ].join("\n");
    // After the change of the user, which has the kernel forget whose death ends a process.
    const rights = owner === undefined ? [] : ["setpriv", "--pdeathsig=KILL", "--no-new-privs"];
    const user = owner === undefined ? [] : [`--userspec=${owner}`, "--groups="];
    const variables = Object.entries({ PATH: SEARCH_PATH, HOME: "/root", ...env }).map(
      ([name, value]) => `${name}=${value}`,
    );
    return [
      // Nothing of it outlives this process.
      ...["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"],
      ...["sh", "-c", script, "sh", "chroot", ...user, this.path],
      ...["env", "-i", "-C", folder, ...variables, ...rights, ...argv],
    ];
  }

  #show(folder: string): void {
    mkdirSync(this.at(folder), { recursive: true });
    this.#mounts.push({ from: folder, at: folder, readOnly: true });
  }

  #showNpm(): void {
    const { stdout } = spawnSync("sh", ["-c", "command -v npm"], { encoding: "utf8" });
    const npm = dirname(dirname(realpathSync(stdout.trim())));
    const at = "usr/local/lib/node_modules/npm";
    mkdirSync(this.at(at), { recursive: true });
    this.#mounts.push({ from: npm, at, readOnly: true });
    symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", this.at("usr/local/bin/npm"));
  }
}

export interface RootCommand {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
  readonly mounts?: readonly Mount[];
  /** `uid:gid`. */
  readonly owner?: string | undefined;
}

function makeMountPoint(from: string, at: string): void {
  // A file can be mounted on a file only, and there is none.
  if (!lstatSync(from).isDirectory()) throw new Error(`${from} is no folder`);
  mkdirSync(at, { recursive: true });
}
