import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Namespace } from "../../kubernetes/world/namespace.ts";
import { run } from "../../kubernetes/world/run.ts";
import { BORDER, INSIDE, NAMES, PORTS, SERVER } from "./addresses.ts";

const PREFIX = "culvert-proxies-";
/** Where ip-netns(8) has the namespaces, and where it looks for files of their own. */
const [NAMESPACES, SETTINGS] = ["/run/netns", "/etc/netns"];
let made = 0;

/**
 * A company's network, and what is outside of it:
 *
 * ```
 *  inside  10.93.0.2 ──veth──┃ 10.93.0.1     the company's proxies and its KDC
 *                            ┃ 203.0.113.10  culvert's server
 *                            gate: lets connections to the proxies and the KDC in; counts all others and drops them
 * ```
 */
export class CorporateNetwork implements AsyncDisposable {
  readonly inside: Namespace;
  readonly outside: Namespace;

  private constructor(prefix: string) {
    this.inside = new Namespace(`${prefix}inside`);
    this.outside = new Namespace(`${prefix}outside`);
  }

  /** Removes what a run left behind that never got to clean up, and builds the namespaces. */
  static async create(): Promise<CorporateNetwork> {
    await sweepStale();
    const network = new CorporateNetwork(`${PREFIX}${process.pid}-${++made}-`);
    try {
      await network.#build();
      return network;
    } catch (error) {
      // What went wrong first is told.
      await network[Symbol.asyncDispose]().catch(() => {});
      throw error;
    }
  }

  /** Packets that would have gone past the proxies. */
  async triedToPass(): Promise<number> {
    const { stdout } = await this.outside.must(["nft", "list", "counter", "ip", "gate", "beside"]);
    return Number(/packets (\d+)/.exec(stdout)?.[1]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeAll([this.inside.name, this.outside.name]);
  }

  async #build(): Promise<void> {
    const { inside, outside } = this;
    const company = [`${BORDER} ${NAMES.proxy} ${NAMES.kdc}`, `${SERVER} ${NAMES.serverKnownInside}`];
    writeSettings(inside.name, company);
    writeSettings(outside.name, [...company, `${SERVER} ${NAMES.server}`]);
    for (const { name } of [inside, outside]) {
      await ip("netns", "add", name);
      await ip("-n", name, "link", "set", "lo", "up");
    }
    await ip(
      "link",
      "add",
      "eth0",
      "netns",
      inside.name,
      "type",
      "veth",
      "peer",
      "name",
      "eth0",
      "netns",
      outside.name,
    );
    for (const [{ name }, address] of [[inside, INSIDE] as const, [outside, BORDER] as const]) {
      await ip("-n", name, "address", "add", `${address}/24`, "dev", "eth0");
      await ip("-n", name, "link", "set", "eth0", "up");
    }
    await ip("-n", outside.name, "address", "add", `${SERVER}/32`, "dev", "lo");
    // With a route its packets reach the gate.
    await ip("-n", inside.name, "route", "add", "default", "via", BORDER);
    await this.#closeGate();
  }

  async #closeGate(): Promise<void> {
    const ruleset = `table ip gate {
      counter beside {}
      chain input {
        type filter hook input priority 0; policy accept;
        iif lo accept
        ct state established,related accept
        ip daddr ${BORDER} tcp dport { ${Object.values(PORTS).join(", ")} } accept
        ip daddr ${BORDER} udp dport ${PORTS.kerberos} accept
        meta l4proto { tcp, udp } counter name beside
        drop
      }
    }`;
    await this.outside.must(["nft", "-f", "-"], { stdin: ruleset });
  }
}

/** The namespaces' names carry the process that made them. */
async function sweepStale(): Promise<void> {
  const names = new Set([NAMESPACES, SETTINGS].flatMap((folder) => (existsSync(folder) ? readdirSync(folder) : [])));
  const pidOf = (name: string) => new RegExp(`^${PREFIX}(\\d+)-`).exec(name)?.[1];
  const stale = (pid: string | undefined) => pid !== undefined && !isRunOfOurs(pid);
  await removeAll([...names].filter((name) => stale(pidOf(name))));
}

/** Is that process still running, and is it one of ours? Numbers of processes are given again. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("e2e/proxies");
  } catch {
    return false;
  }
}

/** Each of them, also when another one cannot be removed. */
async function removeAll(names: readonly string[]): Promise<void> {
  const failures = (await Promise.allSettled(names.map(remove))).filter((result) => result.status === "rejected");
  if (failures.length > 0) throw new Error(failures.map(({ reason }) => (reason as Error).message).join("; "));
}

/** With all programs that still run inside; nobody else's can. */
async function remove(name: string): Promise<void> {
  rmSync(settingsOf(name), { recursive: true, force: true });
  if (!existsSync(`${NAMESPACES}/${name}`)) return;
  // A name that is no namespace yet or any more has no programs, and can be deleted.
  const pids = await ip("netns", "pids", name).catch(() => "");
  for (const pid of pids.split("\n").filter(Boolean)) killQuietly(Number(pid));
  await ip("netns", "delete", name);
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended meanwhile.
  }
}

/** What programs in there find in /etc (ip-netns(8)): these names, and no name server to wait for. */
function writeSettings(name: string, hosts: readonly string[]): void {
  mkdirSync(settingsOf(name), { recursive: true });
  writeFileSync(`${settingsOf(name)}/hosts`, `${["127.0.0.1 localhost", ...hosts].join("\n")}\n`);
  writeFileSync(`${settingsOf(name)}/nsswitch.conf`, "hosts: files\n");
}

function settingsOf(name: string): string {
  return `${SETTINGS}/${name}`;
}

async function ip(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(["ip", ...args], { env: { PATH: process.env["PATH"] ?? "" } });
  if (code !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr.trim()}`);
  return stdout;
}
