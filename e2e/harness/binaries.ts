import { createPki } from "../../cli/pki/pki.ts";
import { type CallerListener, type Connection, connectThrough, established } from "./caller.ts";
import { agentFiles, callerTls, type Flags, flags, serverFiles } from "./pki-files.ts";
import { type ManagedProcess, type ProcessOptions, startCulvert } from "./processes.ts";
import { started } from "./started.ts";
import { freePort } from "./targets/absent.ts";
import { TempDir } from "./temp.ts";

/** A folder with certificates, and the ports of a server whose processes come and go. */
export class Site implements Disposable {
  readonly dir = new TempDir();
  readonly uds = this.dir.file("s");
  readonly callerPort: number;
  readonly agentPort: number;
  readonly healthPort: number;

  constructor(ports: { callers: number; agents: number; health: number }) {
    this.callerPort = ports.callers;
    this.agentPort = ports.agents;
    this.healthPort = ports.health;
  }

  listener(via: "uds" | "tls"): CallerListener {
    if (via === "uds") return { path: this.uds };
    return { host: "127.0.0.1", port: this.callerPort, tls: callerTls(this.dir.path) };
  }

  /** A CONNECT of a caller, which must be answered with 200. */
  open(via: "uds" | "tls", target: string): Promise<Connection> {
    return established(connectThrough(this.listener(via), target));
  }

  /** `culvert server`, by Konnectivity's flag names; resolves when it is ready. */
  async startServer(more: Flags = {}, options: ProcessOptions = {}): Promise<ManagedProcess> {
    const url = `http://127.0.0.1:${more["healthPort"] ?? this.healthPort}/readyz`;
    return await started(startCulvert(this.serverArguments(more), options), (server) => server.waitForHealth(url));
  }

  serverArguments(more: Flags = {}): string[] {
    const own = {
      udsName: this.uds,
      serverPort: this.callerPort,
      serverBindAddress: "127.0.0.1",
      agentPort: this.agentPort,
      agentBindAddress: "127.0.0.1",
      healthPort: this.healthPort,
      healthBindAddress: "127.0.0.1",
      adminPort: 0,
    };
    return ["server", ...flags({ ...own, ...serverFiles(this.dir.path), ...more })];
  }

  /** `culvert agent`; resolves at once unless `wait`, which asks its own readiness. */
  async startAgent(
    more: Flags = {},
    { wait = true, agentPort = this.agentPort, ...options }: AgentProcessOptions = {},
  ): Promise<ManagedProcess> {
    const healthPort = wait ? await freePort() : 0;
    const agent = startCulvert(
      this.agentArguments({ proxyServerPort: agentPort, healthServerPort: healthPort, ...more }),
      options,
    );
    if (!wait) return agent;
    return await started(agent, () => agent.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`));
  }

  agentArguments(more: Flags): string[] {
    const own = {
      proxyServerHost: "127.0.0.1",
      proxyServerPort: this.agentPort,
      adminServerPort: 0,
      allowLoopback: true,
    };
    return ["agent", ...flags({ ...own, ...agentFiles(this.dir.path), ...more })];
  }

  [Symbol.dispose](): void {
    this.dir[Symbol.dispose]();
  }
}

interface AgentProcessOptions extends ProcessOptions {
  readonly wait?: boolean;
  /** Another port to dial: a relay's. */
  readonly agentPort?: number;
}

/** Certificates and free ports for one server and its agents, as real processes. */
export async function createSite(): Promise<Site> {
  const [callers, agents, health] = await Promise.all([freePort(), freePort(), freePort()]);
  const site = new Site({ callers, agents, health });
  await createPki({ dir: site.dir.path });
  return site;
}
