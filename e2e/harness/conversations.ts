import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocket } from "ws";
import type { Connection } from "./caller.ts";
import { portThrough } from "./connect-port.ts";
import { Payload } from "./payload.ts";
import { Random } from "./random.ts";
import type { TlsTarget } from "./targets/web.ts";
import { within } from "./wait.ts";

const MAX_BODY_BYTES = 40_000;
const PAUSE_MS = 25;
const ANSWER_MS = 60_000;

/** The two things that a client of some protocol does here. */
interface Client {
  /** Throws when the answer is not what was sent. */
  ask(body: Buffer): Promise<void>;
  /** Ends cleanly. */
  close(): Promise<void>;
}

/** Question and answer on one connection, until somebody wants it finished. */
export class Conversation implements AsyncDisposable {
  readonly name: string;
  readonly #port: AsyncDisposable;
  readonly #talk: Promise<void>;
  #finishing = false;
  /** Answers that were right. */
  rounds = 0;

  /** The client speaks through `port`. */
  constructor(name: string, seed: number, port: AsyncDisposable, client: Client) {
    this.name = name;
    this.#port = port;
    this.#talk = this.#run(new Random(seed), client);
    this.#talk.catch(() => {}); // told by `finish`
  }

  /** Throws what went wrong since the start. */
  async finish(): Promise<void> {
    this.#finishing = true;
    await this.#talk.catch((error: Error) => {
      throw new Error(`${this.name}, after ${this.rounds} answers: ${error.message}`, { cause: error });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#finishing = true;
    await this.#port[Symbol.asyncDispose]();
  }

  async #run(random: Random, client: Client): Promise<void> {
    const round = async () => {
      const body = new Payload(random.between(0, 1000)).at(0, random.between(1, MAX_BODY_BYTES));
      await within(client.ask(body), ANSWER_MS, "an answer");
      this.rounds++;
    };
    for (; !this.#finishing; await sleep(PAUSE_MS)) await round();
    await round(); // a loss in the last pause is a loss
    await within(client.close(), ANSWER_MS, "the clean end");
  }
}

/** Requests on one HTTP/2 connection that echo their bodies. */
export async function http2Conversation(
  name: string,
  seed: number,
  target: TlsTarget,
  connect: () => Promise<Connection>,
): Promise<Conversation> {
  const port = await portThrough(connect);
  const session = connectHttp2(`https://${port.address}`, { ca: target.certificate.cert });
  const lost = failureOf(session);
  const ask = async (body: Buffer) => {
    const stream = session.request({ ":method": "POST", ":path": "/" });
    stream.end(body);
    same(await Promise.race([buffer(stream), lost]), body);
  };
  const close = async () => {
    const closed = once(session, "close");
    session.close();
    await closed;
  };
  return new Conversation(name, seed, port, { ask, close });
}

/** Messages on one WebSocket that are echoed. */
export async function webSocketConversation(
  name: string,
  seed: number,
  connect: () => Promise<Connection>,
): Promise<Conversation> {
  const port = await portThrough(connect);
  const client = new WebSocket(`ws://${port.address}/`, { perMessageDeflate: false });
  const lost = failureOf(client);
  await Promise.race([once(client, "open"), lost]);
  const ask = async (body: Buffer) => {
    const answered = once(client, "message");
    client.send(body);
    const [answer] = await Promise.race([answered, lost]);
    same(answer, body);
  };
  const close = async () => {
    const closed = once(client, "close");
    client.close(1000);
    const [code] = await closed;
    if (code !== 1000) throw new Error(`the WebSocket was closed with ${code}`);
  };
  return new Conversation(name, seed, port, { ask, close });
}

/** Rejects when the client is told of an error or an end that nobody asked for. */
function failureOf(client: {
  on(event: "error" | "close", listener: (error: unknown) => void): unknown;
}): Promise<never> {
  const failure = new Promise<never>((_resolve, reject) => {
    client.on("error", (error) => reject(error as Error));
    client.on("close", () => reject(new Error("the connection was lost")));
  });
  failure.catch(() => {}); // seen by whoever waits for an answer
  return failure;
}

function same(answer: Buffer, body: Buffer): void {
  if (!answer.equals(body)) throw new Error(`${body.length} bytes were sent, ${answer.length} others came back`);
}
