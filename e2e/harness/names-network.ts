import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";
import { ip, removeAll, sweepStale, writeSettings } from "../kubernetes/world/ip-netns.ts";
import { Namespace } from "../kubernetes/world/namespace.ts";
import { MAIN, RUNTIME, requireBuilt } from "./processes.ts";
import type { Program } from "./program.ts";
import { started } from "./started.ts";

export const ECHO_PORT = 7_000;
/** As of a pod of Kubernetes. */
export const SEARCH = ["blue.svc.cluster.test", "svc.cluster.test", "cluster.test", "corp.test"];
/** Time for an answer of the name server for the names of the search list. */
export const QUERY_MS = 200;

const PREFIX = "culvert-names-";
let made = 0;

/**
 * A network namespace with a name server: `echo.test`, `server.test` and the Services `service-N.blue` are in it, and
 * names that begin with `silent` get no answer. The search list is that of a pod, with ndots 5.
 */
export class NamesNetwork implements AsyncDisposable {
  readonly inside: Namespace;
  #names: Program | undefined;

  private constructor(name: string) {
    this.inside = new Namespace(name);
  }

  /** Removes what a killed run left behind, and creates the namespace. */
  static async create(): Promise<NamesNetwork> {
    await sweepStale(PREFIX, isRunOfOurs);
    const network = new NamesNetwork(`${PREFIX}${process.pid}-${++made}-x`);
    return await started(network, () => network.#build());
  }

  /** `culvert` in the namespace. */
  start(args: readonly string[]): Program {
    requireBuilt();
    return this.inside.start(`culvert ${args[0]}`, [RUNTIME, MAIN, ...args]);
  }

  /** Waits until the name server was asked for a name. */
  async asked(name: string): Promise<void> {
    await this.#names?.waitForLog(`silence for ${name}`);
  }

  /** New connections to the port are refused, and open ones are reset, until it is called again. */
  async cut(port: number): Promise<() => Promise<unknown>> {
    const ruleset = `table inet cut { chain input {
      type filter hook input priority 0;
      tcp dport ${port} reject with tcp reset
      }
    }`;
    await this.inside.must(["nft", "-f", "-"], { stdin: ruleset });
    return () => this.inside.must(["nft", "delete", "table", "inet", "cut"]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#names?.kill();
    await removeAll([this.inside.name]);
  }

  async #build(): Promise<void> {
    const { name } = this.inside;
    writeSettings(name, ["127.0.0.1 localhost"]);
    writeFileSync(`/etc/netns/${name}/nsswitch.conf`, "hosts: files dns\n");
    const resolv = `nameserver 127.0.0.1\nsearch ${SEARCH.join(" ")}\noptions ndots:5\n`;
    writeFileSync(`/etc/netns/${name}/resolv.conf`, resolv);
    await ip("netns", "add", name);
    await ip("-n", name, "link", "set", "lo", "up");
    const script = fileURLToPath(source("names-process.ts", import.meta.url));
    this.#names = this.inside.start("name server", [process.execPath, ...RUN_SOURCES, script]);
    await this.#names.waitForLog("listening");
  }
}

/** Is this process still running, and is it ours? Process ids are reused. */
function isRunOfOurs(pid: string): boolean {
  if (pid === String(process.pid)) return true;
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("e2e/processes");
  } catch {
    return false;
  }
}
