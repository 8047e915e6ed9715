import { once, setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { resetSocket } from "../../shared/relay/reset.ts";
import { type CallerListener, type Connection, connectThrough, dialListener } from "../harness/caller.ts";
import { Random } from "../harness/random.ts";
import { within } from "../harness/wait.ts";
import { type Errand, KINDS, type Kind } from "./kinds.ts";
import { pause } from "./pause.ts";
import type { Site } from "./site.ts";
import { Standing } from "./standing.ts";
import type { Tally } from "./tally.ts";
import type { SoakTargets } from "./targets.ts";

/** Number of lasting interactive connections, for each cluster by each way. */
const STANDING_EACH = 3;
const ANSWER_MS = 30_000;
const WAYS = ["tls", "uds"] as const;

interface Route {
  readonly name: string;
  readonly via: "tls" | "uds";
  readonly listener: CallerListener;
}

/** All callers: those that come and go, and those that stay for the whole run. */
export class Traffic implements Disposable {
  readonly #targets: SoakTargets;
  readonly #tally: Tally;
  readonly #random: Random;
  readonly #routes: readonly [Route, ...Route[]];
  readonly #standing: Standing[] = [];
  #stop = new AbortController();
  #running: Promise<void>[] = [];
  #seeds = 0;

  private constructor(routes: readonly Route[], targets: SoakTargets, tally: Tally, seed: number) {
    this.#routes = routes as readonly [Route, ...Route[]];
    this.#targets = targets;
    this.#tally = tally;
    this.#random = new Random(seed);
  }

  /** The interactive connections stand when this resolves, and are silent. */
  static async open(site: Site, targets: SoakTargets, tally: Tally, seed: number): Promise<Traffic> {
    const routes: Route[] = [];
    for (const { files } of site.clusters) {
      for (const via of WAYS) {
        const listener = await files.listener(via, site.callerPort);
        routes.push({ name: `${files.name} over ${via}`, via, listener });
      }
    }
    const traffic = new Traffic(routes, targets, tally, seed);
    for (const route of routes) {
      for (let number = 1; number <= STANDING_EACH; number++) {
        const connection = await traffic.#connect(route, targets.echo.address);
        const standing = new Standing(`interactive ${number} of ${route.name}`, connection, ++traffic.#seeds, tally);
        traffic.#standing.push(standing);
      }
    }
    return traffic;
  }

  /** Connections that stand at rest. */
  get standing(): number {
    return this.#standing.length;
  }

  start(): void {
    this.#stop = new AbortController();
    setMaxListeners(0, this.#stop.signal); // each caller that rests listens for it
    for (const each of this.#standing) each.talk();
    for (const [name, kind] of Object.entries(KINDS)) {
      for (let caller = 0; caller < kind.callers; caller++) this.#running.push(this.#again(name, kind));
    }
  }

  /** Begins nothing more, and lets everything that is under way come to its end. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running.splice(0));
    await Promise.all(this.#standing.map((each) => each.hush()));
  }

  /** The end of the interactive connections, in order. */
  async finish(): Promise<void> {
    await Promise.all(this.#standing.map((each) => each.finish()));
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    for (const each of this.#standing) each.destroy();
  }

  async #again(name: string, kind: Kind): Promise<void> {
    const { signal } = this.#stop;
    while (await pause(this.#random.between(...kind.restMs), signal)) {
      const route = this.#random.pick(this.#routes as [Route, ...Route[]]);
      try {
        await kind.run(this.#errand(route, signal));
        this.#tally.endedWell(name);
      } catch (error) {
        this.#tally.fault(`${name}, ${route.name}: ${(error as Error).message}`);
      }
    }
  }

  #errand(route: Route, signal: AbortSignal): Errand {
    return {
      ...{ targets: this.#targets, tally: this.#tally, random: this.#random },
      ...{ via: route.via, seed: ++this.#seeds, signal },
      ask: (target) => this.#ask(route, target),
      connect: (target) => this.#connect(route, target),
      askAndReset: (target) => this.#askAndReset(route, target),
    };
  }

  #ask({ listener }: Route, target: string): Promise<Connection> {
    this.#tally.connections++;
    return connectThrough(listener, target, { deadlineMs: ANSWER_MS });
  }

  async #connect(route: Route, target: string): Promise<Connection> {
    const connection = await this.#ask(route, target);
    if (connection.status === 200) return connection;
    connection.socket.destroy();
    throw new Error(`CONNECT was answered ${connection.status} ${connection.reason}`);
  }

  async #askAndReset({ listener, via }: Route, target: string): Promise<void> {
    this.#tally.connections++;
    const socket = dialListener(listener);
    socket.on("error", () => {});
    await within(once(socket, via === "tls" ? "secureConnect" : "connect"), ANSWER_MS, "a connection to the listener");
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    await sleep(this.#random.between(0, 5));
    resetSocket(socket);
  }
}
