import { type Agent, startAgent } from "../../agent/agent.ts";
import { type AgentOptions, agentOptions } from "../../agent/context/options.ts";
import { createPki, type Pki } from "../../cli/pki/pki.ts";
import { type ServerOptions, serverOptions } from "../../server/options/options.ts";
import { type Server, startServer } from "../../server/server.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger, type Logger } from "../../shared/runtime/logger.ts";
import { type CallerListener, type Connection, type ConnectOptions, connectThrough } from "./caller.ts";
import { type FaultRelay, startRelay } from "./faults.ts";
import { agentFiles, callerTls, serverFiles } from "./pki-files.ts";
import { started } from "./started.ts";
import type { TargetServer } from "./targets/tcp.ts";
import { TARGETS, type TargetName, type Targets } from "./targets.ts";
import { TempDir } from "./temp.ts";
import { within } from "./wait.ts";

export type Via = "uds" | "tls";

export interface WorldOptions<Name extends TargetName = TargetName> {
  /** How many agents to start and wait for; 1 when left out. */
  readonly agents?: number;
  readonly targets?: readonly Name[];
  readonly server?: Partial<ServerOptions>;
  readonly agent?: Partial<AgentOptions>;
  /** A `FaultRelay` of its own between each agent and the server. */
  readonly relay?: boolean;
  readonly log?: Logger;
}

const CONNECTED_MS = 30_000;

/** A server, its agents and their targets in this process, with throwaway certificates and free ports. */
export class World<Name extends TargetName = TargetName> implements AsyncDisposable {
  readonly dir: TempDir;
  readonly targets: Pick<Targets, Name>;
  readonly agents: Agent[] = [];
  /** A relay for each agent, in the same order; empty without `relay: true`. */
  readonly relays: FaultRelay[] = [];
  /** Without the targets: a world with more of them is one with fewer, to whoever does not ask for them. */
  readonly #options: Omit<WorldOptions, "targets">;
  readonly #log: Logger;
  #server: Server | undefined;
  #pki: Pki | undefined;

  constructor(dir: TempDir, targets: Pick<Targets, Name>, options: WorldOptions<Name>) {
    this.dir = dir;
    this.targets = targets;
    this.#options = options;
    const { CULVERT_E2E_LOG: level = "silent" } = process.env;
    this.#log = options.log ?? createLogger({ level, format: "auto", name: "world" });
  }

  /** The authorities of this world, for certificates of other names. */
  get pki(): Pki {
    if (!this.#pki) throw new Error("the world has no certificates yet");
    return this.#pki;
  }

  async makePki(): Promise<void> {
    this.#pki = await createPki({ dir: this.dir.path });
  }

  get server(): Server {
    if (!this.#server) throw new Error("the world has no server now");
    return this.#server;
  }

  /** The path in front of the first agent. */
  get relay(): FaultRelay {
    const [relay] = this.relays;
    if (!relay) throw new Error("start the world with relay: true");
    return relay;
  }

  /** Where callers connect to. */
  listener(via: Via): CallerListener {
    const { uds, callers } = this.server.addresses;
    if (via === "uds") {
      if (uds === undefined) throw new Error("the server has no unix socket");
      return { path: uds };
    }
    if (!callers) throw new Error("the server has no TCP listener for callers");
    return { host: "127.0.0.1", port: callers.port, tls: callerTls(this.dir.path) };
  }

  /** One CONNECT, to a target of this world by name or to any `host:port`. */
  connect(target: Name | (string & {}), options: ConnectOptions & { readonly via?: Via } = {}): Promise<Connection> {
    const known = this.targets as Readonly<Record<string, TargetServer | undefined>>;
    const address = known[target]?.address ?? target;
    return connectThrough(this.listener(options.via ?? "uds"), address, options);
  }

  /** Starts the server, also again after `stopServer`: agents are found on the port they know. */
  async startServer(overrides: Partial<ServerOptions> = {}): Promise<Server> {
    const values: ServerOptions = {
      ...defaultsOf(serverOptions),
      serverId: "world",
      udsName: this.dir.file("s"),
      serverBindAddress: "127.0.0.1",
      agentBindAddress: "127.0.0.1",
      healthBindAddress: "127.0.0.1",
      serverPort: 0,
      agentPort: 0,
      healthPort: 0,
      adminPort: 0,
      ...serverFiles(this.dir.path),
      ...this.#options.server,
      ...overrides,
    };
    this.#server = await startServer(values, { log: this.#log, listenEphemeral: true });
    return this.#server;
  }

  /** Starts one more agent, behind a relay of its own if the world has relays, and waits until it is connected. */
  async startAgent(overrides: Partial<AgentOptions> = {}, { wait = true } = {}): Promise<Agent> {
    const port = this.server.addresses.agents?.port ?? 0;
    if (this.#options.relay) this.relays.push(await startRelay({ host: "127.0.0.1", port }));
    const values: AgentOptions = {
      ...defaultsOf(agentOptions),
      agentId: `agent-${this.agents.length + 1}`,
      proxyServerHost: "127.0.0.1",
      proxyServerPort: this.relays.at(-1)?.port ?? port,
      healthServerPort: 0,
      adminServerPort: 0,
      allowLoopback: true,
      ...agentFiles(this.dir.path),
      ...this.#options.agent,
      ...overrides,
    };
    const agent = await startAgent(values, { log: this.#log });
    this.agents.push(agent);
    if (wait) await within(agent.whenConnected(), CONNECTED_MS, "the agent's tunnel");
    return agent;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Error("the world ends");
    for (const agent of this.agents) agent.destroy(ended);
    this.#server?.destroy(ended);
    const rest: readonly AsyncDisposable[] = [...this.relays, ...Object.values<TargetServer>(this.targets)];
    await Promise.all(rest.map((each) => each[Symbol.asyncDispose]()));
    this.dir[Symbol.dispose]();
  }
}

/** A whole world that is ready: the agents are connected when this resolves. */
export async function startWorld<const Name extends TargetName = never>(
  options: WorldOptions<Name> = {},
): Promise<World<Name>> {
  const dir = new TempDir();
  const targets: Partial<Record<TargetName, TargetServer>> = {};
  for (const name of options.targets ?? []) targets[name] = await TARGETS[name]();
  return await started(new World<Name>(dir, targets as Pick<Targets, Name>, options), async (world) => {
    await world.makePki();
    await world.startServer();
    for (let i = 0; i < (options.agents ?? 1); i++) await world.startAgent();
  });
}
