import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { until } from "../basics/testing/wait.ts";
import { type MemoryAccount, PRESSURE, UNBOUNDED } from "../limits/memory-account.ts";
import type { SessionOptions } from "./bounds.ts";
import type { Stream } from "./stream.ts";
import { type End, pair, turn } from "./testing/sessions.ts";

const RUNS = process.env["CI"] === "true" ? 600 : 60;

type Side = "client" | "server";
type Command =
  | { readonly do: "open"; readonly side: Side; readonly head: number }
  | { readonly do: "write"; readonly at: number; readonly side: Side; readonly bytes: number }
  | { readonly do: "end" | "destroy" | "pause" | "resume"; readonly at: number; readonly side: Side }
  | { readonly do: "drain"; readonly side: Side }
  | { readonly do: "wait" };

/** One direction as the oracle sees it: what went in, what came out, and how it ended. */
class Direction {
  readonly sent: Buffer[] = [];
  readonly received: Buffer[] = [];
  wroteEnd = false;
  sawEnd = false;

  check(reset: boolean): void {
    const sent = Buffer.concat(this.sent);
    const received = Buffer.concat(this.received);
    assert.ok(received.equals(sent.subarray(0, received.length)), "what came out is the beginning of what went in");
    if (this.sawEnd) assert.ok(this.wroteEnd && received.length === sent.length, "an end only behind the last byte");
    if (!reset) assert.ok(this.sawEnd, "without a reset everything arrives");
  }
}

/** One stream: both Duplexes, both directions, and whether anybody cut it. */
class Conversation {
  readonly opener: Side;
  readonly up = new Direction();
  readonly down = new Direction();
  readonly ends: Partial<Record<Side, Stream>> = {};
  reset = false;
  #written = 0;

  constructor(opener: Side) {
    this.opener = opener;
  }

  direction(from: Side): Direction {
    return from === this.opener ? this.up : this.down;
  }

  attach(side: Side, stream: Stream): void {
    this.ends[side] = stream;
    const incoming = this.direction(side === "client" ? "server" : "client");
    stream.on("data", (chunk: Buffer) => incoming.received.push(Buffer.from(chunk)));
    stream.on("end", () => {
      incoming.sawEnd = true;
    });
    stream.on("error", (error: NodeJS.ErrnoException) => {
      assert.ok(["ECONNRESET", "ESESSION"].includes(error.code ?? ""), String(error));
      this.reset = true;
    });
  }

  payload(bytes: number): Buffer {
    const chunk = Buffer.alloc(bytes);
    for (let at = 0; at < bytes; at++) chunk[at] = (this.#written + at) * 31;
    this.#written += bytes;
    return chunk;
  }
}

class Model {
  readonly ends: Record<Side, End>;
  readonly conversations: Conversation[] = [];
  /** Streams of one side not yet met by the other; they arrive in the order of opening. */
  readonly #unmet: Record<Side, Conversation[]> = { client: [], server: [] };
  readonly #met: Record<Side, number> = { client: 0, server: 0 };

  constructor(options: Partial<SessionOptions>) {
    this.ends = pair(options);
  }

  async run(command: Command): Promise<void> {
    if (command.do === "wait") await turn();
    else if (command.do === "drain") this.ends[command.side].session.drain();
    else if (command.do === "open") this.#open(command.side, command.head);
    else this.#act(command);
    this.#meet();
  }

  #open(side: Side, head: number): void {
    const { session } = this.ends[side];
    if (session.draining) {
      assert.throws(() => session.open(), { reason: "go_away" });
      return;
    }
    const conversation = new Conversation(side);
    const first = head > 0 ? conversation.payload(head) : undefined;
    if (first !== undefined) conversation.up.sent.push(first);
    conversation.attach(side, session.open(first));
    this.conversations.push(conversation);
    this.#unmet[side].push(conversation);
  }

  #act(command: Exclude<Command, { do: "open" | "drain" | "wait" }>): void {
    const conversation = this.conversations[command.at % this.conversations.length];
    const stream = conversation?.ends[command.side];
    if (conversation === undefined || stream === undefined || stream.destroyed) return;
    if (command.do === "pause") stream.pause();
    else if (command.do === "resume") stream.resume();
    else if (command.do === "destroy") {
      conversation.reset = true;
      stream.destroy();
    } else if (command.do === "end") this.#end(conversation, command.side);
    else if (command.do === "write" && !stream.writableEnded) {
      const chunk = conversation.payload(command.bytes);
      conversation.direction(command.side).sent.push(chunk);
      stream.write(chunk);
    }
  }

  #end(conversation: Conversation, side: Side): void {
    conversation.direction(side).wroteEnd = true;
    conversation.ends[side]?.end();
  }

  /** Hands accepted streams to their conversations; ids tell which, because drained ends refuse some. */
  #meet(): void {
    for (const side of ["client", "server"] as const) {
      const other = side === "client" ? "server" : "client";
      const { accepted } = this.ends[other];
      for (; this.#met[side] < accepted.length; this.#met[side]++) {
        const stream = accepted[this.#met[side]] as Stream;
        const found = this.#unmet[side].find((conversation) => conversation.ends[side]?.id === stream.id);
        assert.ok(found, `stream ${stream.id} was opened by nobody`);
        if (stream.destroyed) found.reset = true;
        else found.attach(other, stream);
      }
    }
  }

  /** Lets everything end that was not cut, then asks the oracle. */
  async finish(): Promise<void> {
    const settled = () => {
      this.#meet();
      for (const conversation of this.conversations) {
        for (const side of ["client", "server"] as const) {
          conversation.ends[side]?.resume();
          if (!conversation.ends[side]?.destroyed) this.#end(conversation, side);
        }
      }
      return Object.values(this.ends).every(({ session }) => session.streamCount === 0);
    };
    await until(settled);
    // A stream is destroyed turns after it is over on the wire, and gives bytes that nobody has read back only then.
    await until(
      () =>
        Object.values(this.ends).every(({ session }) => session.bufferedBytes === 0) &&
        this.conversations.every(({ ends }) => Object.values(ends).every((stream) => stream.destroyed)),
    );
    for (const { session } of Object.values(this.ends)) {
      assert.deepEqual([session.closed, session.pendingOpens], [false, 0]);
    }
    for (const conversation of this.conversations) {
      conversation.up.check(conversation.reset);
      conversation.down.check(conversation.reset);
    }
    for (const { session } of Object.values(this.ends)) session.destroy();
  }
}

const side = fc.constantFrom<Side>("client", "server");
interface Traffic {
  /** Which stream. */
  readonly at: fc.Arbitrary<number>;
  readonly bytes: fc.Arbitrary<number>;
}
const commandWith = ({ at, bytes }: Traffic): fc.Arbitrary<Command> =>
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ do: fc.constant("open" as const), side, head: fc.nat(40) }) },
    { weight: 12, arbitrary: fc.record({ do: fc.constant("write" as const), at, side, bytes }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("end" as const), at, side }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("destroy" as const), at, side }) },
    { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("pause" as const, "resume" as const), at, side }) },
    { weight: 6, arbitrary: fc.record({ do: fc.constant("wait" as const) }) },
  );
const commandsWith = (traffic: Traffic) =>
  fc
    .tuple(fc.array(commandWith(traffic), { maxLength: 80, size: "max" }), fc.option(fc.tuple(fc.nat(80), side)))
    .map(([list, drain]) => (drain ? list.toSpliced(drain[0], 0, { do: "drain", side: drain[1] }) : list));
/** Now and then a stream begins with the small window. */
function eachThirdTime(): MemoryAccount {
  let asked = 0;
  return {
    ...UNBOUNDED,
    get pressure() {
      return ++asked % 3 === 0 ? PRESSURE.over : PRESSURE.none;
    },
  };
}

const options = fc.record({
  initialWindow: fc.integer({ min: 64, max: 2_000 }),
  freshWindow: fc.constantFrom(0, 1_000, 5_000),
  pool: fc.constantFrom(UNBOUNDED, eachThirdTime()),
  maxWindow: fc.constantFrom(0, 8_000),
  maxFramePayload: fc.integer({ min: 1, max: 3_000 }),
  maxPending: fc.integer({ min: 1, max: 5_000 }),
});

test("two sessions and any order of opening, writing, ending, cutting, pausing: bytes are equal, every stream ends", async () => {
  await holds({ at: fc.nat(20), bytes: fc.nat(3_000) }, options);
});

test("the same with writes of the size that sockets are read in, which leave remnants behind whole records", async () => {
  const bytes = fc.oneof(fc.integer({ min: 65_400, max: 65_600 }), fc.nat(3_000));
  const windows = fc.record({
    initialWindow: fc.constantFrom(65_500, 131_072),
    maxWindow: fc.constant(262_144),
    bulkBytes: fc.constantFrom(0, 100_000),
  });
  await holds({ at: fc.nat(2), bytes }, windows);
});

async function holds(traffic: Traffic, options: fc.Arbitrary<Partial<SessionOptions>>): Promise<void> {
  const property = fc.asyncProperty(commandsWith(traffic), options, async (list, chosen) => {
    const model = new Model(chosen);
    for (const next of list) await model.run(next);
    await model.finish();
  });
  await fc.assert(property, { numRuns: RUNS });
}

test("a hundred streams at once, each a few windows long, arrive whole both ways", async () => {
  const ends = pair({ initialWindow: 16_384, maxWindow: 65_536 });
  const digest = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
  const collect = (stream: Stream) =>
    new Promise<string>((resolve) => {
      const hash = createHash("sha256");
      stream.on("data", (chunk: Buffer) => hash.update(chunk)).on("end", () => resolve(hash.digest("hex")));
    });
  const payloads = Array.from({ length: 100 }, (_, count) => Buffer.alloc(count * 2_000, `stream ${count} `));
  const back: Array<Promise<string>> = [];
  for (const payload of payloads) {
    const near = ends.client.session.open();
    back.push(collect(near));
    near.end(payload);
  }
  await until(() => ends.server.accepted.length === 100);
  for (const far of ends.server.accepted) far.pipe(far);
  assert.deepEqual(await Promise.all(back), payloads.map(digest));
});
