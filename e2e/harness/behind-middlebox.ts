import { readFile, writeFile } from "node:fs/promises";
import type { TestContext } from "node:test";
import type { Agent } from "../../agent/agent.ts";
import type { AgentOptions } from "../../agent/context/options.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import { established } from "./caller.ts";
import { captureLog, type LogLine } from "./log-lines.ts";
import { Middlebox, type MiddleboxBehaviour } from "./middlebox.ts";
import { type Scrape, scrapeRegistry } from "./scrape.ts";
import { encodeTransfer, play, type TransferTarget, transferTarget } from "./transfer.ts";
import { within } from "./wait.ts";
import { startWorld, type World } from "./world.ts";

export interface BehindMiddleboxOptions {
  readonly habit?: (connection: number) => MiddleboxBehaviour | undefined;
  /** Off: the box has the agent's own certificate, and a CA that the agent takes for the server's. */
  readonly innerTls?: boolean;
  readonly server?: Partial<ServerOptions>;
  readonly agent?: Partial<AgentOptions>;
}

const TRANSFER_MS = 60_000;

/** A server and its agent, and a box in between that opens the TLS and has habits. */
export class BehindMiddlebox {
  readonly world: World<"echo">;
  readonly box: Middlebox;
  readonly lines: readonly LogLine[];
  readonly #target: TransferTarget;
  readonly #own: Partial<AgentOptions>;
  #seed = 0;

  private constructor(
    world: World<"echo">,
    box: Middlebox,
    more: { lines: readonly LogLine[]; target: TransferTarget; own: Partial<AgentOptions> },
  ) {
    this.world = world;
    this.box = box;
    this.lines = more.lines;
    this.#target = more.target;
    this.#own = more.own;
  }

  static async start(t: TestContext, options: BehindMiddleboxOptions = {}): Promise<BehindMiddlebox> {
    const { innerTls = true, habit, server, agent } = options;
    const { log, lines } = captureLog("debug");
    const world = await startWorld({
      ...{ log, agents: 0, targets: ["echo"] },
      server: { innerTls: innerTls ? "auto" : "never", agentWaitMs: 5_000, ...server },
    });
    t.after(() => world[Symbol.asyncDispose]());
    const box = await Middlebox.start(world.server.addresses.agents?.port ?? 0);
    t.after(() => box[Symbol.asyncDispose]());
    if (habit !== undefined) box.habit = habit;
    const boxCa = world.dir.file("box-ca.crt");
    await writeFile(boxCa, box.authority.cert);
    if (!innerTls) box.clientTls = await certificateOf(world);
    const trust = innerTls ? { outerCa: boxCa } : ({ caCert: boxCa, innerTls: "never" } as const);
    const target = await transferTarget();
    t.after(() => target[Symbol.asyncDispose]());
    return new BehindMiddlebox(world, box, { lines, target, own: { proxyServerPort: box.port, ...trust, ...agent } });
  }

  startAgent(more: Partial<AgentOptions> = {}, { wait = true } = {}): Promise<Agent> {
    return this.world.startAgent({ ...this.#own, ...more }, { wait });
  }

  get agent(): Agent {
    const [agent] = this.world.agents;
    if (agent === undefined) throw new Error("no agent was started");
    return agent;
  }

  /** Lines of the log that say this. */
  said(msg: string): readonly LogLine[] {
    return this.lines.filter((line) => line.msg === msg);
  }

  scrape(): Promise<Scrape> {
    return scrapeRegistry(this.agent.metrics.registry);
  }

  /** Bytes both ways on `count` streams at once, each byte compared with what it has to be. */
  async transfers(count: number, bytes: number): Promise<void> {
    await Promise.all(Array.from({ length: count }, () => this.#transfer(bytes)));
  }

  async #transfer(bytes: number): Promise<void> {
    const transfer = { seed: ++this.#seed, closing: "both at once", bytesUp: bytes, bytesDown: bytes } as const;
    await using connection = await established(this.world.connect(this.#target.address));
    connection.socket.write(encodeTransfer(transfer));
    const both = Promise.all([play(connection.socket, "caller", transfer), this.#target.outcome(transfer.seed)]);
    await within(both, TRANSFER_MS, `a transfer of ${bytes} bytes each way`);
  }
}

/** For a box that shall speak for the agent. */
async function certificateOf(world: World<"echo">): Promise<{ cert: string; key: string }> {
  const read = (file: string) => readFile(world.dir.file(file), "utf8");
  return { cert: await read("agent.crt"), key: await read("agent.key") };
}
