import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import type { Stream } from "../../shared/yamux/stream.ts";
import { frame } from "../../shared/yamux/testing/sessions.ts";
import { assertUnharmed } from "../harness/bystander.ts";
import { connectThrough } from "../harness/caller.ts";
import { INSPECTED } from "../harness/inspector.ts";
import { ResidentGrowth } from "../harness/resident-growth.ts";
import { tenantAgent, withoutAcks } from "../harness/tenant-agent.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** With the frame of one byte in front of it, and both headers, about what one TLS record holds. */
const PADDING = Buffer.alloc(16_200, "p");
const ATTACK_BYTES = 200 * MIB;
const PAIRS_AT_ONCE = 16;
/** Between two rounds of an attack on memory, which is not to be one on time: this process measures as well. */
const REST_MS = 10;
const MOST_GROWTH = 32 * MIB;
/** The kernel takes 208 KiB of it and Node 64 KiB: what follows waits in the window of the stream. */
const FILLING = 288 * KIB;

/** As a user starts it: an inspector alone is added, to collect what is garbage before it is measured. */
const PROCESS = { nodeArgs: INSPECTED };

/** Runs an attack of red on a server whose growth is measured, beside honest callers of blue. */
async function withGrowthBounded(
  t: TestContext,
  body: (tenants: TwoTenants, attacked: (attack: () => Promise<void>) => Promise<void>) => Promise<void>,
): Promise<void> {
  await using tenants = await startTwoTenants({ process: PROCESS });
  await body(tenants, async (attack) => {
    const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
    const attacking = attack();
    attacking.catch(() => {}); // it is waited for below
    t.diagnostic(await assertUnharmed(tenants));
    await attacking;
    t.diagnostic(`grown by ${((await growth.assertBounded(MOST_GROWTH)) / MIB).toFixed(1)} MiB`);
  });
}

/**
 * Each pair of frames goes alone: a byte that is kept, and what fills the read that it came in. At up to 25 MB/s.
 */
async function sendPadded(pieces: Stream, padding: Stream): Promise<void> {
  for (let sent = 0, pair = 1; sent < ATTACK_BYTES; sent += PADDING.length, pair++) {
    pieces.write("x");
    await new Promise((resolve) => padding.write(PADDING, resolve));
    if (pair % PAIRS_AT_ONCE === 0) await sleep(REST_MS);
  }
}

test("pieces of one byte that a caller leaves unread, each in a read of 16 KiB, hold no more than they are", async (t) => {
  await withGrowthBounded(t, async ({ red, agentPort, callerPort }, attacked) => {
    await using agent = await tenantAgent(red, agentPort);
    await using stopped = await connectThrough(await red.listener("uds", 0), "10.0.0.1:1");
    stopped.socket.pause();
    await using reading = await connectThrough(await red.listener("tls", callerPort), "10.0.0.2:1");
    reading.socket.resume();
    const [pieces, padding] = agent.streams as [Stream, Stream];
    pieces.write(Buffer.alloc(FILLING));
    await waitFor(() => pieces.writableLength === 0, { deadlineMs: 10_000, what: "the caller's sockets to be full" });
    await attacked(async () => {
      await sendPadded(pieces, padding);
      const isRead = () => reading.socket.bytesRead > ATTACK_BYTES;
      await waitFor(isRead, { deadlineMs: 20_000, what: "the last of the padding" });
    });
    assert.equal(agent.session.streamCount, 2, "nobody was cut");
  });
});

/** Fewer a second than end a session, and more than a link may have unacknowledged. */
const PINGS = { links: 24, rounds: 500, each: 90 };

test("so do answers to pings on links that acknowledge nothing", async (t) => {
  await withGrowthBounded(t, async ({ red, agentPort }, attacked) => {
    const links = await Promise.all(
      Array.from({ length: PINGS.links }, (_, number) =>
        tenantAgent(red, agentPort, { onLink: withoutAcks, agentId: `${number}` }),
      ),
    );
    const pings = Buffer.concat(Array.from({ length: PINGS.each }, (_, value) => frame.ping(value)));
    await attacked(async () => {
      for (let round = 0; round < PINGS.rounds; round++) {
        for (const { link } of links) link.write([pings], pings.length);
        await sleep(REST_MS);
      }
      const answers = links.reduce((sum, { link }) => sum + link.received, 0);
      t.diagnostic(`${(answers / MIB).toFixed(1)} MiB of answers have come`);
    });
    for (const { session } of links) session.destroy();
  });
});

const STOPPED = 192;
/** Of 20 bytes: with what is there already they fit in a window. */
const SHORT = { bytes: 20, each: 800 };

/** Each piece goes alone. */
async function sendShort<T>(ways: readonly T[], send: (way: T, piece: Buffer) => unknown): Promise<void> {
  let sent = 0;
  for (let round = 0; round < SHORT.each; round++) {
    for (const way of ways) {
      send(way, Buffer.alloc(SHORT.bytes));
      if (sent++ % PAIRS_AT_ONCE === 0) await sleep(1);
      else await turn();
    }
  }
}

test("pieces of 20 bytes that callers leave unread, each in a TLS record of its own, hold no more than twice what they are", async (t) => {
  await withGrowthBounded(t, async ({ red, agentPort }, attacked) => {
    await using agent = await tenantAgent(red, agentPort);
    const listener = await red.listener("uds", 0);
    const callers: Socket[] = [];
    try {
      while (callers.length < STOPPED) callers.push((await connectThrough(listener, "10.0.0.1:1")).socket.pause());
      for (const stream of agent.streams) stream.write(Buffer.alloc(FILLING));
      const isFull = () => agent.streams.every(({ writableLength }) => writableLength === 0);
      await waitFor(isFull, { deadlineMs: 20_000, what: "the callers' sockets to be full" });
      await attacked(async () => {
        await sendShort(agent.streams, ({ id }, piece) => {
          const alone = frame.data(id, piece);
          agent.link.write([alone], alone.length);
        });
      });
      assert.equal(agent.session.streamCount, STOPPED, "nobody was cut");
    } finally {
      for (const socket of callers) socket.destroy();
    }
  });
});

test("so do those that callers send before their CONNECT is answered", async (t) => {
  await withGrowthBounded(t, async ({ red, agentPort, callerPort }, attacked) => {
    await using agent = await tenantAgent(red, agentPort, { onStream: (stream) => stream.accept() });
    const tls = { ca: red.ca, ...(await red.callerPair), servername: red.sni };
    const callers: Socket[] = [];
    try {
      while (callers.length < STOPPED) {
        const raw = connectTcp({ host: "127.0.0.1", port: callerPort, noDelay: true });
        const socket = connectTls({ socket: raw, ...tls }).on("error", () => {});
        await once(socket, "secureConnect");
        callers.push(socket);
      }
      for (const socket of callers) socket.write("CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n");
      await waitFor(() => agent.streams.length === STOPPED, { deadlineMs: 5_000, what: "a stream of each" });
      await attacked(() => sendShort(callers, (socket, piece) => socket.write(piece)));
    } finally {
      for (const socket of callers) socket.destroy();
    }
  });
});
