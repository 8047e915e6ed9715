import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { InFlight } from "./acks.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const MBIT = 125_000;
const MOST = 16 * MIB;

type Varying = number | ((ms: number) => number);

/** A line with a queue that drops nothing, as a relay with backpressure has, or the send buffer of a TCP socket. */
interface Path {
  readonly bytesPerSecond: Varying;
  readonly rttMs: Varying;
  /** Additional delay, each way and each half millisecond; order is kept, as TCP does. */
  readonly jitterMs?: (random: () => number) => number;
  /** Both ends do nothing for 100 ms of each second. */
  readonly stalls?: boolean;
  /** Links that share the line. */
  readonly links?: number;
  /** Bytes the application has written until then. */
  readonly written?: (ms: number) => number;
  /** A sender goes beyond the bound by less than one: the session's turn, 32 KiB, if nothing else is said. */
  readonly frame?: number;
  readonly seconds: number;
  /** When the measurement begins. */
  readonly fromSecond?: number;
}

interface Result {
  /** Of what the line can carry. */
  readonly share: number;
  readonly shares: readonly number[];
  /** The time that a small message waited beyond half a round trip, for room and in the queue, ms. */
  readonly waited: { readonly p50: number; readonly p99: number };
  /** Of the first link, every 10 ms. */
  readonly bounds: readonly number[];
}

const STEP_MS = 0.5;
const SMALL = 100;

/** One end's sender and the other's receiver, with the ack cadence of `Acks` where no ack finds a write to go with. */
class SimulatedLink {
  readonly inFlight = new InFlight(MOST, 0);
  readonly small: number[] = [];
  readonly #frame: number;
  readonly #carried: { readonly offset: number; readonly sinceMs: number }[] = [];
  readonly #arriving: { readonly atMs: number; readonly bytes: number }[] = [];
  readonly #acks: { readonly atMs: number; readonly offset: number }[] = [];
  #bulkSent = 0;
  #sent = 0;
  #acked = 0;
  received = 0;
  #told = 0;
  #toldAtMs = 0;
  #waitingSinceMs = 0;

  constructor(frame: number) {
    this.#frame = frame;
  }

  /** Sends what the bound allows, small messages first and bulk in whole frames; gives the bytes to the line. */
  send(nowMs: number, written: number): number {
    const before = this.#sent;
    while (this.small.length > 0 || this.#bulkSent < written) {
      const room = this.inFlight.bound - (this.#sent - this.#acked);
      if (room <= 0) {
        this.inFlight.onLimited();
        break;
      }
      for (const sinceMs of this.small.splice(0)) {
        this.#sent += SMALL;
        this.#carried.push({ offset: this.#sent, sinceMs });
      }
      const bulk = Math.min(written - this.#bulkSent, Math.ceil(Math.min(room, 256 * KIB) / this.#frame) * this.#frame);
      this.#bulkSent += bulk;
      this.#sent += bulk;
      this.inFlight.onSent(this.#sent, nowMs);
    }
    return this.#sent - before;
  }

  leavesLine(bytes: number, atMs: number): void {
    this.#arriving.push({ atMs: Math.max(atMs, this.#arriving.at(-1)?.atMs ?? 0), bytes });
  }

  /** Small messages that have arrived: since when they were under way. */
  receive(nowMs: number): number[] {
    while (this.#arriving[0] !== undefined && this.#arriving[0].atMs <= nowMs) {
      if (this.received === this.#told) this.#waitingSinceMs = nowMs;
      this.received += this.#arriving.shift()?.bytes ?? 0;
    }
    const whole = this.#carried.findIndex(({ offset }) => offset > this.received);
    return this.#carried.splice(0, whole < 0 ? this.#carried.length : whole).map(({ sinceMs }) => sinceMs);
  }

  acknowledge(nowMs: number, arrivesAtMs: number): void {
    const due = this.received - this.#told;
    const enough = due >= 64 * KIB && nowMs - this.#toldAtMs >= 5;
    if (due === 0 || !(enough || nowMs - this.#waitingSinceMs >= 10)) return;
    this.#told = this.received;
    this.#toldAtMs = nowMs;
    this.#acks.push({ atMs: Math.max(arrivesAtMs, this.#acks.at(-1)?.atMs ?? 0), offset: this.received });
  }

  takeAcks(nowMs: number): void {
    while (this.#acks[0] !== undefined && this.#acks[0].atMs <= nowMs) {
      this.#acked = this.#acks.shift()?.offset ?? 0;
      this.inFlight.onAck(this.#acked, nowMs);
    }
  }
}

function simulate(path: Path): Result {
  const random = fixedRandom();
  const at = (value: Varying, ms: number) => (typeof value === "number" ? value : value(ms));
  // Small messages go alone for a while, as the heads of the first streams do.
  const written = path.written ?? ((ms: number) => (ms < 200 ? 0 : Number.POSITIVE_INFINITY));
  const links = Array.from({ length: path.links ?? 1 }, () => new SimulatedLink(path.frame ?? 32 * KIB));
  const fromMs = (path.fromSecond ?? 3) * 1_000;
  const line: { readonly link: SimulatedLink; bytes: number }[] = [];
  const waits: number[] = [];
  const bounds: number[] = [];
  let receivedBefore: number[] = [];
  let capacity = 0;
  let nextSmallMs = 0;
  for (let step = 0; step < (path.seconds * 1_000) / STEP_MS; step++) {
    const nowMs = step * STEP_MS;
    const rate = at(path.bytesPerSecond, nowMs);
    const oneWayMs = () => at(path.rttMs, nowMs) / 2 + (path.jitterMs?.(random) ?? 0);
    const measured = nowMs >= fromMs;
    if (nowMs === fromMs) receivedBefore = links.map(({ received }) => received);
    if (nowMs >= nextSmallMs) {
      links[0]?.small.push(nowMs);
      nextSmallMs = nowMs + 15 + 10 * random();
    }
    if (!(path.stalls && nowMs % 1_000 < 100)) {
      for (const link of links) {
        for (const sinceMs of link.receive(nowMs))
          if (measured) waits.push(nowMs - sinceMs - at(path.rttMs, nowMs) / 2);
        link.acknowledge(nowMs, nowMs + oneWayMs());
        link.takeAcks(nowMs);
        const bytes = link.send(nowMs, written(nowMs));
        if (bytes > 0) line.push({ link, bytes });
      }
    }
    let budget = (rate * STEP_MS) / 1_000;
    if (measured) capacity += budget;
    for (let first = line[0]; first !== undefined && budget > 0; first = line[0]) {
      const bytes = Math.min(first.bytes, budget);
      first.link.leavesLine(bytes, nowMs + oneWayMs());
      budget -= bytes;
      first.bytes -= bytes;
      if (first.bytes <= 0) line.shift();
    }
    if (nowMs % 10 === 0) bounds.push(links[0]?.inFlight.bound ?? 0);
  }
  const shares = links.map(({ received }, index) => (received - (receivedBefore[index] ?? 0)) / capacity);
  const share = shares.reduce((sum, each) => sum + each, 0);
  return { share, shares, waited: percentiles(waits), bounds };
}

function percentiles(values: number[]): { p50: number; p99: number } {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (part: number) => sorted[Math.floor(part * sorted.length)] ?? 0;
  return { p50: at(0.5), p99: at(0.99) };
}

/** The same numbers in every run (Lehmer's generator). */
function fixedRandom(): () => number {
  let state = 20_011;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

function expect(result: Result, { share, waitedMs }: { share: number; waitedMs: number }): void {
  const { p50, p99 } = result.waited;
  assert.ok(result.share >= share, `${(result.share * 100).toFixed(1)} % of the line`);
  assert.ok(p99 <= waitedMs, `small messages waited ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms`);
}

/** On slow lines most of the wait is the whole frame by which a sender goes beyond the bound. */
const LINES = [
  { mbit: 5, rttMs: 40, share: 0.98, waitedMs: 120 },
  { mbit: 10, rttMs: 10, share: 0.98, waitedMs: 70 },
  { mbit: 10, rttMs: 40, share: 0.95, waitedMs: 75 },
  { mbit: 10, rttMs: 100, share: 0.95, waitedMs: 90 },
  { mbit: 20, rttMs: 200, share: 0.95, waitedMs: 150 },
  { mbit: 50, rttMs: 20, share: 0.98, waitedMs: 45 },
  { mbit: 100, rttMs: 30, share: 0.98, waitedMs: 55 },
  { mbit: 100, rttMs: 100, share: 0.96, waitedMs: 90 },
  { mbit: 1_000, rttMs: 10, share: 0.98, waitedMs: 45 },
];

for (const { mbit, rttMs, share, waitedMs } of LINES) {
  test(`a bulk transfer fills a line of ${mbit} Mbit/s and ${rttMs} ms and leaves it usable`, () => {
    expect(simulate({ bytesPerSecond: mbit * MBIT, rttMs, seconds: 30 }), { share, waitedMs });
  });
}

test("frames cut to the room there is leave less of a queue than a whole turn of the session", () => {
  expect(simulate({ bytesPerSecond: 10 * MBIT, rttMs: 40, frame: 4 * KIB, seconds: 30 }), {
    share: 0.95,
    waitedMs: 55,
  });
});

test("a line on which 64 KiB are half a second is kept busy by little more than 64 KiB", () => {
  const result = simulate({ bytesPerSecond: MBIT, rttMs: 200, seconds: 60, fromSecond: 10 });
  expect(result, { share: 0.98, waitedMs: 1_000 });
});

/** Time that the floor and the frame which goes beyond it take on a line, with a tenth more for timers and acks. */
const floorMs = (bytesPerSecond: number): number => (1.1 * 96 * KIB * 1_000) / bytesPerSecond;

for (const kilobytesPerSecond of [20, 60, 125, 300]) {
  test(`a line of ${kilobytesPerSecond} kB/s, which 64 KiB fill for longer than any round trip, never has more under way`, () => {
    const bytesPerSecond = 1_000 * kilobytesPerSecond;
    expect(simulate({ bytesPerSecond, rttMs: 60, seconds: 300 }), { share: 0.99, waitedMs: floorMs(bytesPerSecond) });
  });
}

test("loopback is at several MiB within 50 ms of bulk and is not held back", () => {
  const result = simulate({ bytesPerSecond: 400e6, rttMs: 0.2, seconds: 4, fromSecond: 0.25 });
  expect(result, { share: 0.98, waitedMs: 60 });
  assert.ok((result.bounds[25] ?? 0) >= 4 * MIB, `${result.bounds[25]} bytes`);
});

test("a long path without a limit of its own is at 60 % of what the replay buffer allows within three seconds", () => {
  const bytesPerSecond = MOST / 0.1;
  const result = simulate({ bytesPerSecond: 10 * bytesPerSecond, rttMs: 100, seconds: 20, fromSecond: 3 });
  assert.ok(result.share * 10 >= 0.6, `${(result.share * 1_000).toFixed(0)} %`);
});

test("a line that goes from 10 to 50 Mbit/s and back is followed within three seconds", () => {
  const bytesPerSecond = (ms: number) => (ms < 10_000 || ms >= 20_000 ? 10 : 50) * MBIT;
  expect(simulate({ bytesPerSecond, rttMs: 40, seconds: 20, fromSecond: 13 }), { share: 0.97, waitedMs: 75 });
  expect(simulate({ bytesPerSecond, rttMs: 40, seconds: 30, fromSecond: 23 }), { share: 0.97, waitedMs: 75 });
});

test("a path whose round trip is four times the least most of the time does not bring the bound down", () => {
  const jitterMs = (random: () => number) => (random() < 0.002 ? 0 : 25 + 10 * random());
  expect(simulate({ bytesPerSecond: 100 * MBIT, rttMs: 20, jitterMs, seconds: 60 }), { share: 0.9, waitedMs: 160 });
});

test("a path whose round trip is anything from 20 to 300 ms keeps half of its line", () => {
  const jitterMs = (random: () => number) => -20 * Math.log(1 - random());
  expect(simulate({ bytesPerSecond: 100 * MBIT, rttMs: 20, jitterMs, seconds: 60 }), { share: 0.5, waitedMs: 400 });
});

test("a round trip that rises for good is believed within three seconds", () => {
  const rttMs = (ms: number) => (ms < 5_000 ? 20 : 100);
  expect(simulate({ bytesPerSecond: 100 * MBIT, rttMs, seconds: 20, fromSecond: 8 }), { share: 0.95, waitedMs: 100 });
  expect(simulate({ bytesPerSecond: 10 * MBIT, rttMs, seconds: 20, fromSecond: 8 }), { share: 0.9, waitedMs: 120 });
});

test("event loops that stand still for 100 ms of each second cost no more than that time", () => {
  expect(simulate({ bytesPerSecond: 100 * MBIT, rttMs: 30, stalls: true, seconds: 30 }), {
    share: 0.85,
    waitedMs: 160,
  });
  expect(simulate({ bytesPerSecond: 10 * MBIT, rttMs: 40, stalls: true, seconds: 30 }), { share: 0.9, waitedMs: 250 });
  expect(simulate({ bytesPerSecond: 400e6, rttMs: 0.2, stalls: true, seconds: 10 }), { share: 0.85, waitedMs: 150 });
});

test("links that share a line share it, and their queue does not grow without end", () => {
  for (const [links, waitedMs] of [
    [2, 250],
    [4, 450],
  ] as const) {
    const result = simulate({ bytesPerSecond: 100 * MBIT, rttMs: 40, links, seconds: 60, fromSecond: 20 });
    expect(result, { share: 0.97, waitedMs });
    assert.ok(Math.min(...result.shares) >= 0.3 / links, `shares: ${result.shares}`);
  }
});

test("a queue that stood from the first byte is found by a probe", () => {
  const written = () => Number.POSITIVE_INFINITY;
  expect(simulate({ bytesPerSecond: 10 * MBIT, rttMs: 40, written, seconds: 30 }), { share: 0.95, waitedMs: 110 });
});

test("a sender with little to send, on whatever path, keeps the bound it has learned", () => {
  const jitterMs = (random: () => number) => 40 * random();
  const bulkMs = 3_000;
  const written = (ms: number) =>
    ms < bulkMs ? 12.5e3 * ms : 12.5e3 * bulkMs + Math.floor((ms - bulkMs) / 500) * 20 * KIB;
  const { bounds } = simulate({ bytesPerSecond: 200 * MBIT, rttMs: 60, jitterMs, written, seconds: 20 });
  assert.equal(bounds.at(-1), bounds[bulkMs / 10 + 100]);
});

test("whatever is called in whatever order, the bound stays between 64 KiB and what the replay buffer holds", () => {
  const offset = fc.oneof(fc.integer({ min: 0, max: 1 << 26 }), fc.maxSafeNat());
  const nowMs = fc.double({ min: -1e3, max: 1e9, noNaN: true });
  const call = fc.oneof(
    fc.record({ call: fc.constant("onSent" as const), offset, nowMs }),
    fc.record({ call: fc.constant("onAck" as const), offset, nowMs }),
    fc.record({ call: fc.constant("onLimited" as const), offset, nowMs }),
  );
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 64 * MIB }),
      offset,
      fc.array(call, { maxLength: 200 }),
      (most, from, calls) => {
        const inFlight = new InFlight(most, from);
        for (const { call: name, offset, nowMs } of calls) {
          if (name === "onLimited") inFlight.onLimited();
          else inFlight[name](offset, nowMs);
          assert.ok(inFlight.bound >= 64 * KIB && inFlight.bound <= Math.max(64 * KIB, most), `${inFlight.bound}`);
        }
      },
    ),
    { seed: 5, numRuns: 2_000 },
  );
});
