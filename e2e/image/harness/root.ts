import { spawnSync } from "node:child_process";
import { cpSync, existsSync, realpathSync, symlinkSync } from "node:fs";
import { dirname } from "node:path";
import { MachineRoot, type Mount, SEARCH_PATH } from "../../harness/machine-root.ts";

const NETWORK_FILES = ["hosts", "resolv.conf", "nsswitch.conf", "ld.so.cache", "passwd", "group", "ssl"];

/** The root of a stage: this machine in place of a Node.js image, with npm and a network. */
export class Root extends MachineRoot {
  constructor(path: string) {
    super(path);
    for (const name of NETWORK_FILES.filter((name) => existsSync(`/etc/${name}`))) {
      cpSync(`/etc/${name}`, this.at(`etc/${name}`), { recursive: true, verbatimSymlinks: true });
    }
    this.#showNpm();
  }

  /**
   * The command line of a process that is process 1 of its own process namespace in this root. Its first line on stdout
   * is `pid N`, by which this machine knows it. With an owner it has that user and no capabilities.
   */
  commandLine({ argv, env, folder, mounts = [], owner, readOnly = false }: RootCommand): string[] {
    const script = [
      "set -e",
      "umask 022",
      "read -r pid _ < /proc/self/stat",
      'echo "pid $pid"',
      this.script({ mounts, readOnly, proc: "mount -t proc proc", dev: "mount --bind /dev" }),
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

  #showNpm(): void {
    const { stdout } = spawnSync("sh", ["-c", "command -v npm"], { encoding: "utf8" });
    const npm = dirname(dirname(realpathSync(stdout.trim())));
    this.show(npm, "/usr/local/lib/node_modules/npm");
    symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", this.at("usr/local/bin/npm"));
  }
}

interface RootCommand {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
  readonly mounts?: readonly Mount[];
  /** `uid:gid`. */
  readonly owner?: string;
  /** Nothing can be written but to mounts. */
  readonly readOnly?: boolean;
}
