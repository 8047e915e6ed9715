import { chmodSync, cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MachineRoot, type Mount } from "../../harness/machine-root.ts";

const REPOSITORY = join(import.meta.dirname, "../../..");
/** As the Dockerfile copies it. */
const APP = ["dist", "node_modules", "package.json", "docs"];
const ENTRY_POINTS = { culvert: "usr/local/bin/culvert", "proxy-server": "proxy-server", "proxy-agent": "proxy-agent" };

interface RootOptions {
  readonly user: number;
  readonly group: number;
  /** Groups beside it, as fsGroup. */
  readonly groups: readonly number[];
  readonly readOnly: boolean;
  readonly hosts: readonly string[];
  readonly mounts: readonly Mount[];
}

/**
 * Prepares a root in `folder`, and returns the command line that runs a program in it: this machine's programs, culvert
 * as its image has it, and the mounts; as this user, without capabilities. Signals reach the program itself.
 */
export function inPodRoot(folder: string, argv: readonly string[], options: RootOptions): string[] {
  const root = new MachineRoot(join(folder, "root"));
  for (const name of APP) root.show(join(REPOSITORY, name), `/app/${name}`);
  for (const [name, at] of Object.entries(ENTRY_POINTS)) {
    cpSync(join(REPOSITORY, "docker", name), root.at(at));
    chmodSync(root.at(at), 0o755); // the clone may be private to its user
  }
  writeFileSync(root.at("etc/hosts"), `${options.hosts.join("\n")}\n`);
  writeFileSync(root.at("etc/nsswitch.conf"), "hosts: files\n");
  const { mounts, readOnly, user, group, groups } = options;
  // It is no process 1, and sees the processes of this machine.
  const script = root.script({ mounts, readOnly, proc: "mount --rbind /proc", dev: "mount --rbind /dev" });
  const file = join(folder, "enter.sh");
  writeFileSync(file, `set -e\n${script}\n`);
  const identity = [`--reuid=${user}`, `--regid=${group}`, groupsFlag(groups)];
  return [
    ...["unshare", "--mount", "--propagation=private", "sh", file, "chroot", root.path, "setpriv", ...identity],
    ...["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "env", "--chdir=/app", ...argv],
  ];
}

function groupsFlag(groups: readonly number[]): string {
  return groups.length === 0 ? "--clear-groups" : `--groups=${groups.join(",")}`;
}
