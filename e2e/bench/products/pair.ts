import { createSite, type Site } from "../../harness/binaries.ts";
import { takesConnections, waitFor } from "../../harness/wait.ts";
import type { Contender, ContenderName, Surroundings } from "../contenders.ts";
import type { BenchTarget, DialSpec } from "../dial-spec.ts";
import type { Plan, Product, Way } from "./product.ts";
import { Program } from "./program.ts";

const DEADLINE_MS = 30_000;

/** Server and agent of a product, fresh: nothing has gone through them but the byte that showed that they work. */
export class Pair implements Contender {
  readonly name: ContenderName;
  /** From the start of the server's process until it accepts on all its ports. */
  readonly listeningMs: number;
  /** From the start of the agent's process until a connection of a caller has brought a byte back. */
  readonly firstEchoMs: number;
  readonly dial: (target: BenchTarget) => DialSpec;
  readonly #site: Site;
  readonly #server: Program;
  readonly #agent: Program;

  /** `echoed`: resolves when a first echo has come back, with its time; by default one of a CONNECT over HTTP/1. */
  static async start(product: Product, around: Surroundings, way: Way, echoed = firstEcho): Promise<Pair> {
    const site = await createSite();
    const begun: AsyncDisposable[] = [];
    try {
      const plan = await product.plan(site, around.ports, way);
      const serverStarted = now();
      const server = new Program(plan.server, site.dir.file("server.log"), plan.env);
      begun.push(server);
      await listening(server, plan.listeners);
      const listeningMs = now() - serverStarted;
      const agentStarted = now();
      const agent = new Program(plan.agent, site.dir.file("agent.log"), plan.env);
      begun.push(agent);
      const firstEchoMs = (await echoed(around, plan, [server, agent])) - agentStarted;
      return new Pair(product, { site, server, agent, plan, listeningMs, firstEchoMs });
    } catch (error) {
      for (const program of begun) await program[Symbol.asyncDispose]();
      site[Symbol.dispose]();
      throw new Error(`${product.name} does not work: ${(error as Error).message}`, { cause: error });
    }
  }

  private constructor({ name }: Product, parts: Parts) {
    this.name = name;
    this.listeningMs = parts.listeningMs;
    this.firstEchoMs = parts.firstEchoMs;
    this.dial = parts.plan.dial;
    this.#site = parts.site;
    this.#server = parts.server;
    this.#agent = parts.agent;
  }

  get near(): number {
    return this.#server.pid;
  }

  get far(): number {
    return this.#agent.pid;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent[Symbol.asyncDispose]();
    await this.#server[Symbol.asyncDispose]();
    this.#site[Symbol.dispose]();
  }
}

interface Parts {
  readonly site: Site;
  readonly server: Program;
  readonly agent: Program;
  readonly plan: Plan;
  readonly listeningMs: number;
  readonly firstEchoMs: number;
}

/** Resolves when all of these accept connections. */
export async function listening(server: Program, listeners: readonly DialSpec[]): Promise<void> {
  for (const listener of listeners) {
    const what = `${JSON.stringify(listener)} accepts`;
    await waitFor(() => server.ended || takesConnections(listener), { deadlineMs: DEADLINE_MS, everyMs: 1, what });
    if (server.ended) throw new Error(`the server ended: ${server.lastLines()}`);
  }
}

async function firstEcho(around: Surroundings, plan: Plan, programs: readonly Program[]): Promise<number> {
  try {
    const dial = plan.dial("echo");
    const { epochMs } = await around.echoLoad.call("first", { dial, deadlineMs: DEADLINE_MS, until: "echo" });
    return epochMs;
  } catch (error) {
    const logs = programs.map((program) => program.lastLines());
    throw new Error([(error as Error).message, ...logs].join("\n"), { cause: error });
  }
}

/** Milliseconds since the epoch, as the load generator's process counts them, too. */
function now(): number {
  return performance.timeOrigin + performance.now();
}
