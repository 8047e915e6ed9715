import type { Connection } from "./caller.ts";
import { runConcurrently } from "./concurrently.ts";
import { Conversation, http2Conversation, webSocketConversation } from "./conversations.ts";
import { Exchange, type ExchangeTarget, exchangeTarget, type Pace } from "./exchange.ts";
import { started } from "./started.ts";
import type { TcpTarget } from "./targets/tcp.ts";
import { http2Target, type TlsTarget, webSocketTarget } from "./targets/web.ts";

/** Traffic of lasting streams: each line is a kind, its number in a fleet of 200, and its pace. */
const EXCHANGES: readonly (readonly [kind: string, share: number, pace: Pace])[] = [
  ["burst", 2, { maxBytes: 8 * 1024 * 1024, maxPauseMs: 1000 }], // fills windows and replay buffers
  ["bulk", 16, { maxBytes: 256 * 1024, maxPauseMs: 300 }],
  ["dribble", 92, { maxBytes: 40, maxPauseMs: 300 }],
  ["idle", 82, { maxBytes: 0, maxPauseMs: 0 }],
];
const CONVERSATIONS = 4;
const AT_ONCE = 16;

interface FleetTargets {
  readonly exchange: ExchangeTarget;
  readonly http2: TlsTarget;
  readonly webSocket: TcpTarget;
}

/** Streams of every kind, each on one CONNECT of its own for as long as the fleet sails. */
export class Fleet implements AsyncDisposable {
  readonly #targets: FleetTargets;
  readonly #connections: Connection[] = [];
  readonly #streams: (Exchange | Conversation)[] = [];

  constructor(targets: FleetTargets) {
    this.#targets = targets;
  }

  get size(): number {
    return this.#streams.length;
  }

  /** `connect` makes a CONNECT to a target. */
  async launch(connect: (target: string) => Promise<Connection>, seed: number): Promise<void> {
    const { exchange, http2, webSocket } = this.#targets;
    const open = (target: TcpTarget) => async () => {
      const connection = await connect(target.address);
      if (connection.status !== 200) throw new Error(`a CONNECT was refused: ${connection.reason}`);
      this.#connections.push(connection);
      return connection;
    };
    for (let i = 1; i <= CONVERSATIONS; i++) {
      this.#streams.push(await http2Conversation(`HTTP/2 ${i}`, seed + i, http2, open(http2)));
      this.#streams.push(await webSocketConversation(`WebSocket ${i}`, seed - i, open(webSocket)));
    }
    // All are opened before the first one talks: bulk would make every later CONNECT wait for its turn.
    const crews = EXCHANGES.flatMap(([kind, share, pace]) =>
      Array.from({ length: share }, (_, i) => ({ name: `${kind} ${i + 1}`, pace })),
    );
    const opened: Connection[] = [];
    await runConcurrently(crews.length, AT_ONCE, async (i) => {
      opened[i] = await open(exchange)();
    });
    for (const [i, { name, pace }] of crews.entries()) {
      // A seed of its own for each, within the 32 bits in which it is sent.
      const own = (seed % 1_000_000) * 1000 + i;
      this.#streams.push(new Exchange(name, opened[i] as Connection, exchange, own, pace));
    }
  }

  /** Ends every stream cleanly; answers what went wrong with whom since the start. */
  async finish(): Promise<string[]> {
    const results = await Promise.allSettled(this.#streams.map((stream) => stream.finish()));
    return results.flatMap((result) => (result.status === "rejected" ? [String(result.reason?.message)] : []));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { socket } of this.#connections) socket.destroy();
    const conversations = this.#streams.filter((stream) => stream instanceof Conversation);
    const rest: readonly AsyncDisposable[] = [...conversations, ...Object.values<TcpTarget>({ ...this.#targets })];
    await Promise.all(rest.map((each) => each[Symbol.asyncDispose]()));
  }
}

/** A fleet of 200, under way. */
export async function startFleet(connect: (target: string) => Promise<Connection>, seed: number): Promise<Fleet> {
  const targets = {
    exchange: await exchangeTarget(),
    http2: await http2Target(),
    webSocket: await webSocketTarget(),
  };
  return await started(new Fleet(targets), (fleet) => fleet.launch(connect, seed));
}
