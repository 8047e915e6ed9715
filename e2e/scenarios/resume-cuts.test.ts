import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { established } from "../harness/caller.ts";
import { atFull } from "../harness/counts.ts";
import type { FaultRelay } from "../harness/faults.ts";
import { Payload, PayloadCheck } from "../harness/payload.ts";
import type { Direction } from "../harness/relayed-pair.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

// A resume is TLS, upgrade, hello, welcome with the next token, then payload. Wherever its connection is cut, each end
// may believe something else about the token; the agent has to get back with one that the server takes.

/** Positions each way; those of silence take their time, because it has to be noticed first. */
const POSITIONS = { rst: atFull(60, 30, 30), fin: atFull(60, 30, 30), silence: atFull(15, 6, 8) } as const;
/** A silence is noticed after 2.5 keepalives, or when an attempt is given up. */
const HASTY = {
  server: { keepaliveMs: 200, handshakeTimeoutMs: 1_000, helloTimeoutMs: 1_000 },
  agent: { keepaliveMs: 200, handshakeTimeoutMs: 1_000, syncIntervalMs: 20 },
} as const;
/** In flight when the link is lost, each way: what the resume has to bring once more. */
const IN_FLIGHT_BYTES = 400;

/** An echo whose every byte is known. */
class Stream implements Disposable {
  readonly #socket;
  readonly #payload = new Payload(1);
  readonly #check = new PayloadCheck(1);
  #sent = 0;
  ended = false;

  constructor({ socket }: Awaited<ReturnType<World["connect"]>>) {
    this.#socket = socket;
    socket.on("data", (chunk: Buffer) => this.#check.take(chunk));
    socket.on("close", () => {
      this.ended = true;
    });
    socket.resume();
  }

  say(bytes: number): void {
    const chunk = this.#payload.at(this.#sent, bytes);
    this.#sent += chunk.length;
    this.#socket.write(chunk);
  }

  /** All that was said has come back, and nothing else. */
  async heardAll(what: string): Promise<void> {
    await waitFor(() => this.ended || this.#check.bytes >= this.#sent, { deadlineMs: 15_000, what });
    assert.equal(this.ended, false, `${what}: the stream has ended`);
    this.#check.expect(this.#sent, what);
  }

  [Symbol.dispose](): void {
    this.#socket.destroy();
  }
}

/** A stream that has heard its first byte. */
async function echoingStream(world: World<"echo">): Promise<Stream> {
  const connection = await established(world.connect("echo", { via: "tls" }));
  const stream = new Stream(connection);
  stream.say(1);
  await stream.heardAll("the first byte");
  return stream;
}

/** Loses the link with bytes in flight both ways: echoes that are on their way back, and what was not sent yet. */
async function lose(relay: FaultRelay, stream: Stream): Promise<void> {
  stream.say(IN_FLIGHT_BYTES);
  await new Promise(setImmediate);
  relay.cut("rst");
  stream.say(IN_FLIGHT_BYTES);
}

/** Bytes of one whole resume each way, with the payload that it brings. */
async function measureResume(world: World<"echo">, stream: Stream): Promise<Record<Direction, number>> {
  const { relay } = world;
  await lose(relay, stream);
  const before = { ...relay.bytes };
  await stream.heardAll("the first resume, which nobody cuts");
  await waitFor(() => allAcknowledged(world), { what: "acknowledgements both ways" });
  return { forward: relay.bytes.forward - before.forward, backward: relay.bytes.backward - before.backward };
}

/** Neither end keeps a byte for another carrier: the last ack has come through the relay. */
async function allAcknowledged({ server, agents }: World<"echo">): Promise<boolean> {
  const [atServer, atAgent] = await Promise.all(
    [server, ...agents].map(({ metrics }) => scrapeRegistry(metrics.registry)),
  );
  const kept = (scrape: typeof atServer, side: string) => scrape?.value(`culvert_${side}_link_replay_bytes`);
  return kept(atServer, "server") === 0 && kept(atAgent, "agent") === 0;
}

/** Places all over the connection: in TLS, upgrade, hello or welcome, and payload. */
function positions(bytes: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => Math.round((bytes * (i + 0.5)) / count));
}

// A carrier that was cut at once is followed by a wait of up to a second: they do nothing most of the time.
describe("a resume that is cut is made again, and the stream goes on", { concurrency: true }, () => {
  for (const how of ["rst", "fin", "silence"] as const) {
    for (const direction of ["forward", "backward"] as const) {
      test(`by ${how} at any byte ${direction}`, async (context) => {
        await using world = await startWorld({ relay: true, targets: ["echo"], ...HASTY });
        const { relay } = world;
        using stream = await echoingStream(world);
        const whole = await measureResume(world, stream);
        let hit = 0;
        for (const at of positions(whole[direction], POSITIONS[how])) {
          const cutsBefore = relay.cuts;
          relay.cutLater(1, { how, [direction]: at });
          await lose(relay, stream);
          await stream.heardAll(`after a resume that was cut at byte ${at} of ${whole[direction]} ${direction}`);
          if (relay.cuts - cutsBefore > 1) hit++;
        }
        context.diagnostic(`a resume takes ${JSON.stringify(whole)} bytes; ${hit} were cut in it`);
        assert.ok(hit > POSITIONS[how] / 2, `${hit} of ${POSITIONS[how]} resumes were cut`);
        assert.equal(world.server.tunnels.clusters.get("default")?.tunnels().size, 1);
        assert.equal(world.targets.echo.accepted, 1, "one stream, from the first byte to the last");
      });
    }
  }
});

test("five resumes in a row that lose the welcome, and the stream goes on", async () => {
  await using world = await startWorld({ relay: true, targets: ["echo"], ...HASTY });
  const { relay } = world;
  using stream = await echoingStream(world);
  const whole = await measureResume(world, stream);
  // Behind the server's part of TLS and its answer to the upgrade, before the echoes.
  const welcome = whole.backward - 2 * IN_FLIGHT_BYTES - 200;
  for (let k = 1; k <= 5; k++) relay.cutLater(k, { how: "rst", backward: welcome + 20 * k });
  await lose(relay, stream);
  await stream.heardAll("after five resumes that were cut");
  assert.ok(relay.cuts >= 7, `${relay.cuts} cuts`);
});
