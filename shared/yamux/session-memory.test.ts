import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { until } from "../basics/testing/wait.ts";
import { type MemoryAccount, PRESSURE, type Pressure } from "../limits/memory-account.ts";
import { MemoryPool, type MemoryShare } from "../limits/memory-pool.ts";
import type { Stream } from "./stream.ts";
import { type End, frame, handHeld, pair, turn } from "./testing/sessions.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const RUNS = process.env["CI"] === "true" ? 2_000 : 200;

/** The simplest pool: used up above its limit. */
class Pool implements MemoryAccount {
  limit: number;
  held = 0;
  reserved = 0;
  refused = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  readonly mustShrink = false;
  isShort = false;

  get pressure(): Pressure {
    if (this.held > this.limit) return PRESSURE.full;
    return this.isShort ? PRESSURE.over : PRESSURE.none;
  }

  enter(): void {}

  countOrphaned(): void {}

  hold(delta: number): void {
    this.held += delta;
    assert.ok(this.held >= 0, "more was given back than was held");
  }

  reserve(bytes: number): boolean {
    if (this.held + this.reserved + bytes > this.limit) return false;
    this.reserved += bytes;
    return true;
  }

  release(bytes: number): void {
    this.reserved -= bytes;
    assert.ok(this.reserved >= 0, "more credit was given back than was taken");
  }

  onRefused(): void {
    this.refused++;
  }
}

test("what one session leaves unread refuses the streams of another, both ways, until it has been read", async () => {
  const pool = new Pool(1_000);
  const full = await handHeld("server", { initialWindow: 2_000, pool });
  const { session, transport, accepted } = await handHeld("server", { pool });
  full.transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(1_000)));
  transport.receive(frame.syn(1));
  assert.equal(accepted.length, 1, "at the limit");

  full.transport.receive(frame.data(1, "x"));
  assert.throws(() => session.open(), { reason: "pool_full" });
  transport.receive(frame.syn(3));
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => [sent.id, sent.flags]),
    [[3, 8]],
  );
  assert.deepEqual([accepted.length, pool.refused], [1, 2]);

  while (full.accepted[0]?.read() !== null);
  transport.receive(frame.syn(5));
  session.open().on("error", () => {});
  assert.deepEqual([accepted.length, pool.refused, pool.held], [2, 2, 0]);
});

test("a refusal that has another reason is not the pool's", async () => {
  const pool = new Pool(0);
  const { session, transport } = await handHeld("server", { initialWindow: 2_000, maxStreams: 1, pool });
  transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(11)), frame.syn(3));
  assert.throws(() => session.open(), { reason: "overloaded" });
  session.drain();
  transport.receive(frame.syn(5));
  assert.throws(() => session.open(), { reason: "go_away" });
  assert.equal(pool.refused, 0);
});

test("a new stream has a small window where memory is short, in the session or in the pool, and a larger one elsewhere", async () => {
  const pool = new Pool(1024 * KIB);
  const options = { initialWindow: 16 * KIB, freshWindow: 64 * KIB, budget: 50 * KIB, pool };
  const { session, transport, accepted } = await handHeld("server", options);
  /** Bytes that we let the peer send at first, on a stream of its own and on one of ours. */
  const windowsNow = async (id: number): Promise<readonly [its: number, ours: number]> => {
    transport.receive(frame.syn(id));
    accepted.at(-1)?.accept();
    session.open(Buffer.from("head")).on("error", () => {});
    await turn();
    const sent = transport.frames();
    const delta = (isOurs: boolean) =>
      sent.filter((one) => one.type === 1 && (one.id !== id) === isOurs).reduce((sum, one) => sum + one.length, 0);
    return [16 * KIB + delta(false), 16 * KIB + delta(true)];
  };
  assert.deepEqual(await windowsNow(1), [64 * KIB, 64 * KIB]);
  pool.isShort = true;
  assert.deepEqual(await windowsNow(3), [16 * KIB, 16 * KIB]);
  pool.isShort = false;
  transport.receive(frame.data(1, Buffer.alloc(51 * KIB)));
  assert.deepEqual(await windowsNow(5), [16 * KIB, 16 * KIB], "more than the session's budget is held");
  while (accepted[0]?.read() !== null);
  await turn();
  transport.frames();
  assert.deepEqual(await windowsNow(7), [64 * KIB, 64 * KIB]);
});

test("both ends use what a new stream may send beyond the agreed window", async () => {
  const ends = pair({ initialWindow: 1_000, freshWindow: 4_000, maxWindow: 4_000 });
  const near = ends.client.session.open().on("error", () => {});
  near.write(Buffer.alloc(8_000));
  await until(() => ends.server.accepted[0]?.held === 1_000);
  const far = ends.server.accepted[0] as Stream;
  far.on("error", () => {}).write(Buffer.alloc(8_000)); // and ACK with it
  await until(() => far.held === 4_000 && near.held === 4_000);
  ends.client.session.destroy();
});

/** Credit for one whole window, read at once, one round trip of 10 ms being known. */
async function creditFor(pool: MemoryAccount): Promise<number> {
  let now = 0;
  const { transport, accepted } = await handHeld("server", { initialWindow: 64 * KIB, pool, now: () => now });
  now = 10;
  transport.receive(frame.pong(1), frame.syn(1), frame.data(1, Buffer.alloc(64 * KIB)));
  accepted[0]?.read();
  await turn();
  return transport.frames().reduce((sum, sent) => sum + (sent.type === 1 ? sent.length : 0), 0);
}

test("a window grows out of the pool, and not beyond it", async () => {
  const pool = new Pool(128 * KIB);
  assert.equal(await creditFor(pool), 128 * KIB);
  assert.equal(pool.reserved, 64 * KIB);
  assert.equal(await creditFor(pool), 128 * KIB);
  assert.equal(await creditFor(pool), 64 * KIB, "the pool has no credit left");
  assert.equal(pool.reserved, 128 * KIB);
});

test("credit that the session's own budget refuses is not taken from the pool", async () => {
  let now = 0;
  const pool = new Pool(1_000 * KIB);
  const options = { initialWindow: 64 * KIB, budget: 63 * KIB, pool, now: () => now };
  const { transport, accepted } = await handHeld("server", options);
  now = 10;
  transport.receive(frame.pong(1), frame.syn(1), frame.data(1, Buffer.alloc(64 * KIB)));
  accepted[0]?.read();
  assert.equal(pool.reserved, 0);
});

test("a stream that is over on the wire has given back its credit, and what it holds when it is read or dropped", async () => {
  let now = 0;
  const pool = new Pool(1_000 * KIB);
  const { transport, accepted } = await handHeld("server", { initialWindow: 64 * KIB, pool, now: () => now });
  now = 10;
  transport.receive(frame.pong(1));
  for (const id of [1, 3]) {
    transport.receive(frame.syn(id), frame.data(id, Buffer.alloc(64 * KIB)));
    const stream = accepted.at(-1) as Stream;
    stream.read();
    stream.end();
    transport.receive(frame.data(id, Buffer.alloc(100), 4));
  }
  await turn();
  assert.deepEqual([pool.held, pool.reserved], [200, 0]);
  accepted[0]?.read();
  accepted[1]?.destroy();
  assert.equal(pool.held, 0);
});

/** An action on a stream: the stream, its end, and the number of bytes. */
interface Step {
  readonly do: "open" | "turn" | "write" | "read" | "return" | "flow" | "pause" | "end" | "destroy";
  readonly at: number;
  readonly far: boolean;
  readonly bytes: number;
}

const often = ["open", "turn", "turn", "turn", "turn", "write", "write", "write", "read", "return", "flow"] as const;
const step: fc.Arbitrary<Step> = fc.record({
  do: fc.constantFrom(...often, "pause", "end", "destroy"),
  at: fc.nat(2),
  far: fc.boolean(),
  bytes: fc.integer({ min: 1, max: 5_000 }),
});

function act(stream: Stream | undefined, step: Step): void {
  if (stream === undefined || stream.destroyed || step.do === "open" || step.do === "turn") return;
  if (step.do === "write") {
    if (!stream.writableEnded) stream.write(Buffer.alloc(step.bytes));
  } else if (step.do === "return") {
    const chunk = stream.read() as Buffer | null;
    if (chunk !== null && !stream.readableEnded) stream.unshift(chunk.subarray(chunk.length >> 1));
  } else if (step.do === "read") stream.read(1 + (stream.readableLength >> 1));
  else if (step.do === "flow") stream.resume();
  else stream[step.do]();
}

test("whatever streams do, sessions hold in the pool what their streams hold, and nothing when they are gone", async () => {
  const property = fc.asyncProperty(
    fc.integer({ min: 1, max: 40_000 }),
    fc.array(step, { maxLength: 80, size: "max" }),
    fc.boolean(),
    async (limit, steps, cut) => {
      const pool = new Pool(limit);
      // Each look at the clock takes a millisecond: a round trip takes some, and so windows do grow.
      let looks = 0;
      const now = () => looks++;
      const { client, server } = pair({ initialWindow: 4_000, maxWindow: 16_000, pool, now });
      const opened: Stream[] = [];
      const held = () => [...opened, ...server.accepted].reduce((sum, stream) => sum + stream.held, 0);
      for (const step of steps) {
        const streams = step.far ? server.accepted : opened;
        if (step.do === "turn") await turn();
        else if (step.do !== "open") act(streams[step.at % Math.max(1, streams.length)], step);
        else if (pool.pressure < PRESSURE.full) opened.push(open(client));
        assert.equal(pool.held, held());
      }
      if (cut) for (const { session } of [client, server]) session.destroy();
      else for (const stream of opened) stream.destroy();
      await until(() => server.session.streamCount === 0);
      assert.equal(pool.held, held());
      assert.equal(pool.reserved, 0, "no stream is open: no credit is taken");
      // Streams that were over before the end are their readers': each has to be read or dropped.
      for (const stream of [...opened, ...server.accepted]) stream.destroy();
      assert.equal(pool.held, 0);
      for (const { session } of [client, server]) session.destroy();
    },
  );
  await fc.assert(property, { numRuns: RUNS });
});

function open({ session }: End): Stream {
  const stream = session.open();
  stream.on("error", () => {});
  return stream;
}

test("streams whose readers take a little again and again hold twice the cap of their cluster at most", async () => {
  const [cap, count, window] = [MIB, 96, 64 * KIB];
  const share = new MemoryPool(1024 * MIB).share("red");
  share.cap = cap;
  const { client, server } = pair({ initialWindow: window, pool: share });
  for (let opened = 0; opened < count; opened++) client.session.open().on("error", () => {});
  await until(() => server.accepted.length === count);
  const streams = [...server.accepted];
  for (const stream of streams) stream.on("error", () => {});
  for (const stream of client.session.streams()) stream.write(Buffer.alloc(4 * window));
  const reading = setInterval(() => {
    for (const stream of streams) stream.read(1);
  }, 20);
  try {
    let most = 0;
    await until(() => {
      most = Math.max(most, share.held);
      return most > 5 * MIB;
    });
    await until(() => share.pressure === PRESSURE.full);
    assert.throws(() => client.session.open(), { reason: "pool_full" });
    await until(() => share.held <= 2 * cap);
    const left = streams.filter(({ destroyed }) => !destroyed).length;
    // 32 where all readers move. A test that stands still for 0.2 s makes them look stopped: what fits below the cap
    // stays.
    assert.ok(left * window >= 0.8 * cap, `${left} of ${count} are left: no more are ended than must be`);
  } finally {
    clearInterval(reading);
    client.session.destroy();
    server.session.destroy();
  }
});

/** A session that has accepted streams of two accounts, each with this number of unread bytes. */
async function twoAccounts(blueHolds: number, redHolds: number) {
  const pool = new MemoryPool(16 * 1024 * KIB);
  const [peers, blue, red] = ["(peers)", "blue", "red"].map((name) => pool.share(name)) as [
    MemoryShare,
    MemoryShare,
    MemoryShare,
  ];
  const { transport, accepted } = await handHeld("server", { pool: peers, initialWindow: 256 * KIB });
  const take = (id: number, account: MemoryShare, bytes: number): Stream => {
    transport.receive(frame.syn(id));
    const stream = accepted.at(-1) ?? assert.fail("not accepted");
    stream.on("error", () => {});
    transport.receive(frame.data(id, Buffer.alloc(bytes / 2)));
    stream.chargeTo(account); // what it holds already goes with it
    transport.receive(frame.data(id, Buffer.alloc(bytes / 2)));
    return stream;
  };
  return { peers, blue, red, ofBlue: take(1, blue, blueHolds), ofRed: take(3, red, redHolds) };
}

test("each account pays for its streams, and nobody for a stream that has ended", async () => {
  const { peers, blue, red, ofBlue, ofRed } = await twoAccounts(1_000, 200);
  assert.deepEqual([peers.held, blue.held, red.held], [0, 1_000, 200]);
  ofBlue.destroy();
  ofRed.destroy();
  assert.deepEqual([peers.held, blue.held, red.held], [0, 0, 0]);
});

test("an account above its cap loses its stalled streams, and another one of the session none", async () => {
  const { blue, red, ofBlue, ofRed } = await twoAccounts(64 * KIB, 64 * KIB);
  blue.cap = 32 * KIB;
  await until(() => ofBlue.destroyed);
  assert.deepEqual([blue.held, red.held, ofRed.destroyed], [0, 64 * KIB, false]);
});
