import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { established } from "../harness/caller.ts";
import { atFull, ON_CI } from "../harness/counts.ts";
import { type Fleet, startFleet } from "../harness/fleet.ts";
import { captureLog } from "../harness/log-lines.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import { Random, seedOfRun } from "../harness/random.ts";
import { RandomCuts } from "../harness/random-cuts.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

// Faults of a path in an hour of bad luck, in a minute: none of them may reach a stream.

const LENGTH_MS = atFull(60_000, 12_000, 30_000);
const BLOWS_EVERY_MS = ON_CI ? ([2_000, 5_000] as const) : ([1_000, 2_500] as const);
/** Silence is noticed after 2.5 of them. */
const KEEPALIVE_MS = 400;
/** An attempt that runs into silence is given up after this time, ms; the next one may get through. */
const ATTEMPT_MS = 1_500;

const HASTY = {
  server: { keepaliveMs: KEEPALIVE_MS, handshakeTimeoutMs: ATTEMPT_MS, helloTimeoutMs: ATTEMPT_MS },
  agent: { keepaliveMs: KEEPALIVE_MS, handshakeTimeoutMs: ATTEMPT_MS },
} as const;

/** Callers come over TLS and over the unix socket in turn. */
function launch(world: Pick<World<never>, "connect">, seed: number): Promise<Fleet> {
  let count = 0;
  return startFleet((target) => world.connect(target, { via: count++ % 2 === 0 ? "uds" : "tls" }), seed);
}

test(`200 streams live through ${LENGTH_MS / 1000} s of cuts, silence and broken resumes without a byte lost or wrong`, async (context) => {
  const seed = seedOfRun();
  await using world = await startWorld({ relay: true, ...HASTY });
  await using fleet = await launch(world, seed);
  const randomCuts = new RandomCuts(world.relay, { random: new Random(seed), everyMs: BLOWS_EVERY_MS });
  await sleep(LENGTH_MS);
  randomCuts[Symbol.dispose]();
  const { cuts, accepted } = world.relay;
  const faults = await fleet.finish();
  context.diagnostic(`seed ${seed}: ${randomCuts.story.length} blows, ${cuts} connections cut, ${accepted} accepted`);
  assert.equal(faults.length, 0, story(seed, faults, randomCuts.story));
  assert.ok(cuts >= randomCuts.story.length / 2, `${cuts} cuts are too few to prove anything`);
});

const CHANGES = LENGTH_MS / 2_000;
const CARRIER_AGE_MS = 1_000;

test(`200 streams and a 100 Hz echo do not notice that the carrier is changed ${CHANGES} times, each second once`, async (context) => {
  const seed = seedOfRun();
  const { log, lines } = captureLog();
  await using world = await startWorld({
    ...{ relay: true, targets: ["echo"], log },
    agent: { maxCarrierAgeMs: CARRIER_AGE_MS },
  });
  await using fleet = await launch(world, seed);
  const pulse = await startPulse(world);
  const { accepted: before } = world.relay;
  /** Not by the log, which tells ten a minute. The newest connection may not have taken over yet. */
  const changes = () => world.relay.accepted - before - 1;
  // An overloaded machine may be late, but not for half of the time.
  const deadlineMs = 2 * CHANGES * CARRIER_AGE_MS * 1.1;
  await waitFor(() => changes() >= CHANGES, { deadlineMs, what: `${CHANGES} changes` });
  await pulse.finish();
  const faults = await fleet.finish();
  context.diagnostic(`seed ${seed}: ${changes()} planned changes`);
  assert.equal(faults.length, 0, story(seed, faults, []));
  assert.equal(world.relay.cuts, 0);
  assert.ok(!lines.some(({ msg }) => msg === "uplink suspended"), "each new one came before the old one went");
});

const PULSE_MS = 10;
const PULSE_BYTES = 64;

/** An echo a hundred times a second, whatever has come back so far. */
async function startPulse(world: World<"echo">): Promise<{ finish(): Promise<void> }> {
  const connection = await established(world.connect("echo", { via: "tls" }));
  const { socket } = connection;
  const payload = new Payload(1);
  const check = new PayloadCheck(1);
  let failure: Error | undefined;
  let sent = 0;
  socket
    .on("data", (chunk: Buffer) => check.take(chunk))
    .on("error", (error) => (failure = error))
    .resume();
  const timer = setInterval(() => {
    const beat = payload.at(sent, PULSE_BYTES);
    sent += beat.length;
    socket.write(beat);
  }, PULSE_MS);
  return {
    async finish() {
      clearInterval(timer);
      await waitFor(() => failure || check.bytes >= sent, { what: "the last echoes" });
      socket.destroy();
      if (failure) throw failure;
      check.expect(sent, "the 100 Hz echo");
    },
  };
}

/** The facts that are needed to find the cause. */
function story(seed: number, faults: readonly string[], blows: readonly string[]): string {
  return [`again with CULVERT_E2E_SEED=${seed}`, ...faults.slice(0, 20), "── what was done ──", ...blows].join("\n");
}
