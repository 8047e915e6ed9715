import assert from "node:assert/strict";
import { resetSocket } from "../../shared/relay/reset.ts";
import type { Connection } from "../harness/caller.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import { peerEnd } from "../harness/peer-end.ts";
import type { Random } from "../harness/random.ts";
import { CLOSINGS, encodeTransfer, play } from "../harness/transfer.ts";
import { within } from "../harness/wait.ts";
import { pause } from "./pause.ts";
import type { Tally } from "./tally.ts";
import { RESET_AFTER_BYTES, SOURCE_BYTES, type SoakTargets } from "./targets.ts";

/** The context of one connection of some kind. */
export interface Errand {
  readonly targets: SoakTargets;
  readonly tally: Tally;
  readonly random: Random;
  readonly via: "tls" | "uds";
  /** No other errand has it. */
  readonly seed: number;
  /** Aborted when the traffic is to end: pauses are cut short, what is under way goes on to its end. */
  readonly signal: AbortSignal;
  /** Asks for a target; any answer will do. */
  ask(target: string): Promise<Connection>;
  /** Asks for a target and wants 200. */
  connect(target: string): Promise<Connection>;
  /** Begins a CONNECT and resets before it is answered. */
  askAndReset(target: string): Promise<void>;
}

/** A kind of traffic: how many callers do it at the same time, how long they rest in between, and what they do. */
export interface Kind {
  readonly callers: number;
  readonly restMs: readonly [number, number];
  /** Throws when something was lost. */
  run(errand: Errand): Promise<void>;
}

/** Longer than any recovery from a cut, on a machine that is busy as well. */
const DEADLINE_MS = 60_000;
const MIB = 1024 * 1024;
const PIECE = 64 * 1024;

/** Rates are those of a machine with 2 cores, which runs callers, targets, relays and five processes of culvert. */
export const KINDS: Readonly<Record<string, Kind>> = {
  "short echo": { callers: 3, restMs: [100, 400], run: shortEcho },
  bulk: { callers: 2, restMs: [200, 800], run: bulk },
  "half-close": { callers: 2, restMs: [100, 500], run: halfClose },
  "reset by the caller": { callers: 1, restMs: [200, 600], run: resetByCaller },
  "reset by the target": { callers: 1, restMs: [200, 600], run: resetByTarget },
  "reset before the answer": { callers: 1, restMs: [200, 600], run: resetBeforeAnswer },
  "refused dial": { callers: 1, restMs: [300, 800], run: refusedDial },
  "reader that stops and goes on": { callers: 4, restMs: [500, 1_500], run: readerThatGoesOn },
  "reader that stops for good": { callers: 4, restMs: [500, 1_500], run: readerThatStops },
};

async function shortEcho({ connect, targets, tally, random, seed }: Errand): Promise<void> {
  await using connection = await connect(targets.echo.address);
  const sent = new Payload(seed).at(0, random.between(1, 2_000));
  connection.socket.write(sent);
  const back = await connection.readBytes(sent.length, DEADLINE_MS);
  assert.ok(back.equals(sent), "the echo is not what was sent");
  connection.end();
  assert.equal(await connection.readAll(DEADLINE_MS), "", "bytes after the echo");
  tally.bytes += sent.length;
}

/** Megabytes up, or down, or both at once. */
async function bulk(errand: Errand): Promise<void> {
  const { random } = errand;
  const direction = random.pick(["up", "down", "both"]);
  const bytes = () => random.between(MIB / 4, 4 * MIB);
  const transfer = { bytesUp: direction === "down" ? 0 : bytes(), bytesDown: direction === "up" ? 0 : bytes() };
  await transferred(errand, { closing: "both at once", ...transfer });
}

/** Every order in which two ends may close. */
async function halfClose(errand: Errand): Promise<void> {
  const { random } = errand;
  const closing = random.pick(CLOSINGS);
  await transferred(errand, {
    closing,
    bytesUp: closing === "target closes wholly, nothing was sent to it" ? 0 : random.between(0, 300_000),
    bytesDown: closing === "caller closes wholly, nothing comes back" ? 0 : random.between(0, 300_000),
  });
}

async function transferred(
  { connect, targets, tally, seed }: Errand,
  part: Omit<Parameters<typeof encodeTransfer>[0], "seed">,
): Promise<void> {
  const transfer = { seed, ...part };
  await using connection = await connect(targets.transfer.address);
  connection.socket.write(encodeTransfer(transfer));
  const ends = [play(connection.socket, "caller", transfer), targets.transfer.outcome(seed)];
  const [down, up] = await within(Promise.all(ends), DEADLINE_MS, `the end of ${JSON.stringify(transfer)}`);
  tally.bytes += (down?.bytes ?? 0) + (up?.bytes ?? 0);
}

/**
 * Over TLS the target must see a reset, and says so if not (targets.ts). A unix socket knows none: it is only closed.
 */
async function resetByCaller({ connect, targets, tally, random, via }: Errand): Promise<void> {
  const target = via === "tls" ? targets.resetByCaller : targets.source;
  await using connection = await connect(target.address);
  if (via === "tls") connection.socket.write("x");
  await receive(connection, random.between(1, 2 * MIB), tally);
  resetSocket(connection.socket);
  tally.resets++;
}

async function resetByTarget({ connect, targets, tally, via }: Errand): Promise<void> {
  await using connection = await connect(targets.resetting.address);
  const end = peerEnd(connection.socket);
  connection.socket.resume();
  connection.socket.write(new Payload().at(0, RESET_AFTER_BYTES));
  const how = await within(end, DEADLINE_MS, "the target's reset");
  // A unix socket knows no reset.
  if (via === "tls") assert.equal(how, "ECONNRESET");
  tally.resets++;
}

async function resetBeforeAnswer({ askAndReset, targets, tally }: Errand): Promise<void> {
  await askAndReset(targets.echo.address);
  tally.resets++;
}

async function refusedDial({ ask, targets }: Errand): Promise<void> {
  await using connection = await ask(targets.refused.address);
  assert.equal(connection.status, 502, connection.reason);
}

async function readerThatGoesOn({ connect, targets, tally, random, signal }: Errand): Promise<void> {
  await using connection = await connect(targets.source.address);
  const check = await receive(connection, random.between(1, SOURCE_BYTES / 2), tally);
  tally.stalled++;
  await pause(random.between(1_000, 6_000), signal);
  await receive(connection, SOURCE_BYTES - check.bytes, tally, check);
  assert.equal(await connection.readAll(DEADLINE_MS), "", "bytes after the end of the source");
  check.expect(SOURCE_BYTES, "the source");
}

async function readerThatStops({ connect, targets, tally, random, signal }: Errand): Promise<void> {
  await using connection = await connect(targets.source.address);
  await receive(connection, random.between(1, SOURCE_BYTES / 4), tally);
  tally.stalled++;
  await pause(random.between(5_000, 15_000), signal);
  if (random.chance(0.5)) resetSocket(connection.socket);
}

/** The next bytes of `Payload()`, verified. */
async function receive(
  connection: Connection,
  bytes: number,
  tally: Tally,
  check = new PayloadCheck(),
): Promise<PayloadCheck> {
  const wanted = check.bytes + bytes;
  while (check.bytes < wanted) {
    const part = await connection.readBytes(Math.min(PIECE, wanted - check.bytes), DEADLINE_MS);
    if (part.length === 0) throw new Error(`ended after ${check.bytes} bytes of ${wanted}`);
    check.take(part);
    tally.bytes += part.length;
  }
  check.expect(wanted, "what came down");
  return check;
}
