import { existsSync } from "node:fs";
import { mkdir, open, rm, stat } from "node:fs/promises";
import { isIP } from "node:net";
import { basename, dirname, join, resolve } from "node:path";
import { HOST_LABEL } from "../../shared/address/server-name.ts";
import { bracketed } from "../../shared/address/target.ts";
import { shellQuoted } from "../../shared/basics/text.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { Authority, type LeafOptions } from "../../shared/pki/certificates.ts";

interface PkiOptions {
  /** Made if it does not exist. It must not contain any of the files yet. */
  readonly dir: string;
  /** Names and addresses at which callers reach the server; by default those of this machine. */
  readonly serverNames?: readonly string[];
  /** Names and addresses at which agents reach the server; by default those of this machine. */
  readonly clusterNames?: readonly string[];
  readonly days?: number;
}

/** Paths of the files of a set, and its CAs, which exist in memory only, for more certificates. */
export interface Pki {
  readonly files: Readonly<Record<PkiFile, string>>;
  readonly serverAuthority: Authority;
  readonly clusterAuthority: Authority;
}

/** A server as other servers know it: by a role. It is the client of one and the server of another. */
export const PEER = { cn: "culvert-peer", o: ["culvert-servers"], usage: "both" } as const satisfies LeafOptions;
const LOCAL_NAMES = ["localhost", "127.0.0.1", "::1"] as const;

/**
 * The files with their explanations, in printed order. There are three CAs, because callers, agents and servers must
 * not take each other's place.
 */
const FILES = {
  "server-ca.crt": "CA of the callers' side, for callers to verify the server and for the server to verify callers",
  "server.crt": "the server's certificate for callers",
  "server.key": "its private key",
  "client.crt": "a caller's certificate (CN=culvert-client), for curl or kube-apiserver",
  "client.key": "its private key",
  "cluster-ca.crt": "CA of the agents' side, for agents to verify the server and for the server to verify agents",
  "cluster.crt": "the server's certificate for agents",
  "cluster.key": "its private key",
  "agent.crt": "an agent's certificate (CN=culvert-agent)",
  "agent.key": "its private key",
  "peer-ca.crt": "CA of a fleet's servers, by which they know each other",
  "peer.crt": "a server's certificate for other servers (O=culvert-servers), of which each may have this one",
  "peer.key": "its private key",
} as const;

export type PkiFile = keyof typeof FILES;
const PKI_FILES = Object.keys(FILES) as PkiFile[];

/** Writes a set of certificates for trying out: all files or none. It overwrites no file. */
export async function createPki(options: PkiOptions): Promise<Pki> {
  const { days = 365, serverNames = LOCAL_NAMES, clusterNames = LOCAL_NAMES } = options;
  for (const name of [...serverNames, ...clusterNames]) checkName(name);
  const dir = await makeFolder(options.dir);
  refuseToOverwrite(dir, PKI_FILES);

  const [serverAuthority, clusterAuthority, peerAuthority] = await Promise.all([
    Authority.create("culvert server CA", days),
    Authority.create("culvert cluster CA", days),
    Authority.create("culvert peer CA", days),
  ]);
  const [server, client, cluster, agent, peer] = await Promise.all([
    serverAuthority.issue({ cn: "culvert-server", names: serverNames, usage: "server" }),
    serverAuthority.issue({ cn: "culvert-client", usage: "client" }),
    clusterAuthority.issue({ cn: "culvert-cluster", names: clusterNames, usage: "server" }),
    clusterAuthority.issue({ cn: "culvert-agent", usage: "client" }),
    peerAuthority.issue(PEER),
  ]);
  const files = await writeAll(dir, {
    "server-ca.crt": serverAuthority.cert,
    "server.crt": server.cert,
    "server.key": server.key,
    "client.crt": client.cert,
    "client.key": client.key,
    "cluster-ca.crt": clusterAuthority.cert,
    "cluster.crt": cluster.cert,
    "cluster.key": cluster.key,
    "agent.crt": agent.cert,
    "agent.key": agent.key,
    "peer-ca.crt": peerAuthority.cert,
    "peer.crt": peer.cert,
    "peer.key": peer.key,
  });
  return { files, serverAuthority, clusterAuthority };
}

export interface RunPkiOptions {
  readonly dir: string;
  /** Added to the names of this machine. */
  readonly serverSan?: readonly string[];
  readonly clusterSan?: readonly string[];
  readonly days?: number;
}

/** `culvert pki`: writes the set and prints what each file is for. */
export async function runPki(
  options: RunPkiOptions,
  print: (line: string) => void = (line) => process.stdout.write(`${line}\n`),
  culvert = ownCommand(),
): Promise<void> {
  const { dir, serverSan = [], clusterSan = [], days = 365 } = options;
  refuseSecondRun(resolve(dir));
  const { files } = await createPki({
    dir,
    days,
    serverNames: [...LOCAL_NAMES, ...serverSan],
    clusterNames: [...LOCAL_NAMES, ...clusterSan],
  });
  // On one machine, the agent can reach the server's health port on loopback, if it may.
  const [target, mayDial] =
    clusterSan.length === 0 ? ["http://127.0.0.1:8092/readyz", " --allow-loopback"] : ["http://example.com/", ""];
  // A certificate may be for *.example.com, but nobody connects to that name.
  const [serverHost, clusterHost] = [serverSan, clusterSan].map(
    (names) => names.find((name) => !name.startsWith("*.")) ?? "127.0.0.1",
  ) as [string, string];
  const at = (name: PkiFile): string => shellQuoted(files[name]);
  print(`Certificates for ${days} days, written into ${resolve(dir)}:`);
  print("");
  for (const name of PKI_FILES) print(`  ${name.padEnd(15)} ${FILES[name]}`);
  print("");
  print("The keys of the CAs are not stored. For other certificates, write a new set.");
  print("To try this set, run each command in a terminal of its own:");
  print("");
  print(`  ${culvert} server --server-port 8090 --agent-port 8091 \\`);
  print(
    `    --server-cert ${at("server.crt")} --server-key ${at("server.key")} --server-ca-cert ${at("server-ca.crt")} \\`,
  );
  print(
    `    --cluster-cert ${at("cluster.crt")} --cluster-key ${at("cluster.key")} --cluster-ca-cert ${at("cluster-ca.crt")}`,
  );
  print("");
  print(`  ${culvert} agent --proxy-server-host ${clusterHost} --proxy-server-port 8091${mayDial} \\`);
  print(`    --ca-cert ${at("cluster-ca.crt")} --agent-cert ${at("agent.crt")} --agent-key ${at("agent.key")}`);
  print("");
  print(`  curl --proxytunnel -x https://${bracketed(serverHost)}:8090 --proxy-cacert ${at("server-ca.crt")} \\`);
  print(`    --proxy-cert ${at("client.crt")} --proxy-key ${at("client.key")} ${target}`);
}

/**
 * The command by which this program was started, for commands to paste: `culvert` if installed, `node PATH` in a clone.
 */
export function ownCommand(script = process.argv[1] ?? ""): string {
  return basename(script).startsWith("main.") ? `node ${shellQuoted(script)}` : "culvert";
}

/** A user who runs the command again most likely wants the set that it wrote the first time. */
function refuseSecondRun(dir: string): void {
  if (presentIn(dir, PKI_FILES).length < PKI_FILES.length) return;
  throw new ConfigError(
    `${dir} already has a whole set, and nothing was written. Use that set, or name another folder for a new one (--dir)`,
  );
}

/** Throws a ConfigError that names existing files. */
export function refuseToOverwrite(dir: string, names: readonly string[]): void {
  const [first, second, ...rest] = presentIn(dir, names);
  if (first === undefined) return;
  throw overwrites(dir, [first, second, rest.length > 0 && `${rest.length} more`].filter(Boolean).join(", "));
}

function overwrites(dir: string, what: string): ConfigError {
  return new ConfigError(`${dir} already has ${what}, and nothing was written. Name another folder (--dir)`);
}

function presentIn(dir: string, names: readonly string[]): string[] {
  return names.filter((name) => existsSync(join(dir, name)));
}

/**
 * Writes all files, or none unless the process is killed meanwhile. The flag `wx` never replaces a file, not even one
 * that another process has just made.
 */
async function writeAll(dir: string, contents: Record<PkiFile, string>): Promise<Record<PkiFile, string>> {
  const paths = Object.fromEntries(PKI_FILES.map((name) => [name, join(dir, name)])) as Record<PkiFile, string>;
  const begun: string[] = [];
  try {
    for (const name of PKI_FILES) {
      const file = await open(paths[name], "wx", name.endsWith(".key") ? 0o600 : 0o644);
      begun.push(paths[name]);
      await file.writeFile(contents[name]).finally(() => file.close());
    }
  } catch (error) {
    for (const path of begun) await rm(path, { force: true });
    if ((error as NodeJS.ErrnoException).code === "EEXIST") throw overwrites(dir, "files of another set");
    throw cannotWrite(dir, error);
  }
  return paths;
}

/** Throws a `ConfigError` for a name that cannot be in the subjectAltName of a certificate. */
export function checkName(name: string): void {
  const labels = name.replace(/^\*\./, "").split(".");
  if (isIP(name) !== 0 || labels.every((label) => HOST_LABEL.test(label))) return;
  throw new ConfigError(`"${name}" is neither a host name nor an IP address that a certificate could carry`);
}

// ── the folder of --dir ──────────────────────────────────────────────────────────────────────────────────────────────

/** The folder of `--dir`. If it does not exist, it is made with its parents, accessible for this user only. */
export async function makeFolder(dir: string): Promise<string> {
  if (dir === "") throw new ConfigError("--dir needs the name of a folder");
  const path = resolve(dir);
  try {
    await makeWithParents(path);
  } catch (error) {
    throw cannotWrite(path, error);
  }
  return path;
}

/** Does not use `recursive: true`: Node never returns on a file system without new folders, such as /proc. */
async function makeWithParents(path: string): Promise<void> {
  if (await isFolder(path)) return;
  if (dirname(path) !== path) await makeWithParents(dirname(path));
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    // Another process may have made it in the meantime.
    if (!(await isFolder(path))) throw error;
  }
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EROFS: "the file system is read-only",
  EEXIST: "a file is in the way",
  ENOTDIR: "a file is in the way",
  ENOENT: "there is no such folder, and it cannot be made",
  ENOSPC: "no space is left",
  EDQUOT: "no space is left for this user",
  ENAMETOOLONG: "the path is too long",
};

/** Why nothing can be written into a folder, for the user. */
export function cannotWrite(dir: string, error: unknown): ConfigError {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return new ConfigError(`nothing can be written into ${dir}: ${REASONS[code] ?? message}`, { cause: error });
}
