import {
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

const REPOSITORY = join(import.meta.dirname, "../../..");
/** As the Dockerfile copies it. */
const APP = ["dist", "node_modules", "package.json", "docs"];
const ENTRY_POINTS = {
  "usr/local/bin/culvert": 'exec node /app/dist/cli/main.js "$@"',
  "proxy-server": 'exec /usr/local/bin/culvert server "$@"',
  "proxy-agent": 'exec /usr/local/bin/culvert agent "$@"',
};
const SYSTEM = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/** Of an image. */
export const SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** A folder or a file that is shown at another path. */
export interface Mount {
  readonly from: string;
  readonly at: string;
  readonly readOnly: boolean;
}

export interface RootOptions {
  readonly user: number;
  readonly group: number;
  /** Groups beside it, as fsGroup. */
  readonly groups: readonly number[];
  readonly readOnly: boolean;
  readonly hosts: readonly string[];
  readonly mounts: readonly Mount[];
}

/**
 * Prepares a root in `folder`, and returns the command line that runs a program in it: this machine's programs, culvert as
 * its image has it, and the mounts; as this user, without capabilities. The mounts are in a namespace of the process, and
 * are gone with it.
 */
export function inPodRoot(folder: string, argv: readonly string[], options: RootOptions): string[] {
  const root = join(folder, "root");
  writeImage(root, options.hosts);
  const mounts = [...imageMounts(), ...options.mounts];
  for (const { from, at } of mounts) makeMountPoint(from, join(root, at));
  const script = [
    "set -e",
    `mount --bind ${root} ${root}`,
    ...mounts.map(({ from, at, readOnly }) => `mount -o bind${readOnly ? ",ro" : ""} ${from} ${root}${at}`),
    `mount --rbind /dev ${root}/dev`,
    `mount --rbind /proc ${root}/proc`,
    ...(options.readOnly ? [`mount -o remount,bind,ro ${root}`] : []),
    'exec "$@"',
  ];
  const file = join(folder, "enter.sh");
  writeFileSync(file, `${script.join("\n")}\n`);
  const { user, group, groups } = options;
  const identity = [`--reuid=${user}`, `--regid=${group}`, groupsFlag(groups)];
  return [
    ...["unshare", "--mount", "--propagation=private", "sh", file, "chroot", root, "setpriv", ...identity],
    ...["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "env", "--chdir=/app", ...argv],
  ];
}

function groupsFlag(groups: readonly number[]): string {
  return groups.length === 0 ? "--clear-groups" : `--groups=${groups.join(",")}`;
}

function writeImage(root: string, hosts: readonly string[]): void {
  for (const name of ["app", "dev", "etc", "proc", "tmp", "usr/local/bin"]) {
    mkdirSync(join(root, name), { recursive: true });
  }
  for (const [path, line] of Object.entries(ENTRY_POINTS)) {
    writeFileSync(join(root, path), `#!/bin/sh\n${line}\n`, { mode: 0o755 });
  }
  writeFileSync(join(root, "etc/hosts"), `${hosts.join("\n")}\n`);
  writeFileSync(join(root, "etc/nsswitch.conf"), "hosts: files\n");
  for (const name of SYSTEM.filter(isLink)) symlinkSync(readlinkSync(`/${name}`), join(root, name));
}

function imageMounts(): Mount[] {
  const folders = readdirSync("/usr").filter((name) => name !== "local");
  const shown = [
    ...SYSTEM.filter((name) => existsSync(`/${name}`) && !isLink(name)).map((name) => [`/${name}`, `/${name}`]),
    ...folders.map((name) => [`/usr/${name}`, `/usr/${name}`]),
    ...APP.map((name) => [join(REPOSITORY, name), `/app/${name}`]),
    [process.execPath, "/usr/local/bin/node"],
  ];
  return shown.map(([from = "", at = ""]) => ({ from, at, readOnly: true }));
}

function isLink(name: string): boolean {
  return lstatSync(`/${name}`, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
}

function makeMountPoint(from: string, at: string): void {
  if (statSync(from).isDirectory()) {
    mkdirSync(at, { recursive: true });
    return;
  }
  mkdirSync(dirname(at), { recursive: true });
  writeFileSync(at, "");
}
