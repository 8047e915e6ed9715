import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { PlayedAgent } from "../../server/testing/played-agent.ts";
import type { Link } from "../../shared/link/link.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { assertUnharmed } from "../harness/bystander.ts";
import { type CallerListener, type Connection, connectThrough } from "../harness/caller.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { scrapePort } from "../harness/scrape.ts";
import { TARGETS } from "../harness/targets.ts";
import { answered, tenantAgent } from "../harness/tenant-agent.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const MIB = 1024 * 1024;
const LINKS = 23;
/** Enough is acknowledged for the link to have much under way. */
const ACKNOWLEDGED = 8 * MIB;
const LIMIT = 8 * MIB;
/** How many more bytes are acknowledged each second from then on. The first shape is the harder one: it still moves. */
const SHAPES = [
  ["all but stop", 1],
  ["stop", 0],
] as const;

/** An agent of red that reads all it gets, and soon acknowledges next to nothing of it. */
function silentAgent(
  { red, agentPort }: TwoTenants,
  number: number,
  perSecond: number,
  most = ACKNOWLEDGED,
): Promise<PlayedAgent> {
  const onLink = (link: Link) => {
    const say = link.sendControl.bind(link);
    let acknowledged = 0;
    let saidAt = 0;
    link.sendControl = (message) => {
      if (message.type !== "ack") return say(message);
      if (acknowledged < most) acknowledged = message.received;
      else if (performance.now() - saidAt < 1_000) return;
      else acknowledged += perSecond;
      saidAt = performance.now();
      say({ ...message, received: acknowledged });
    };
  };
  const onStream = (stream: Stream) => {
    void answered(stream).then(
      () => stream.resume(),
      () => {},
    );
  };
  return tenantAgent(red, agentPort, { agentId: `silent-${number}`, onLink, onStream });
}

/** Sends as long as the server takes it. */
function sendWithoutEnd({ socket }: Connection): void {
  const chunk = Buffer.alloc(64 * 1024);
  const next = (error?: Error | null) => {
    if (error == null && !socket.destroyed) socket.write(chunk, next);
  };
  next();
}

for (const [shape, perSecond] of WHOLE_MATRICES ? SHAPES : SHAPES.slice(0, 1)) {
  const name = `${LINKS} links that ${shape} acknowledging keep what another cluster does not need, and are ended for it`;
  test(name, (t) => withSilentLinks(t, perSecond));
}

async function withSilentLinks(t: TestContext, perSecond: number): Promise<void> {
  await using tenants = await startTwoTenants({ server: { "memory-limit": LIMIT } });
  const { red, callerPort, target, healthPort, blueListener } = tenants;
  const held = async () => (await scrapePort(healthPort)).value("culvert_server_memory_held_bytes");
  await using source = await TARGETS.source();
  const agents = await Promise.all(
    Array.from({ length: LINKS }, (_, number) => silentAgent(tenants, number, perSecond)),
  );
  const ended = () => agents.filter(({ session }) => session.closed).length;
  const listener = await red.listener("tls", callerPort);
  const senders: Connection[] = [];
  try {
    while (agents.some(({ streams }) => streams.length === 0) && senders.length < 200) {
      senders.push(await connectThrough(listener, target));
    }
    for (const sender of senders) sendWithoutEnd(sender);
    // On a busy machine the callers of some are ended before: they have not moved for a while, and memory is short.
    const isSilent = ({ link }: PlayedAgent) => link.received > ACKNOWLEDGED;
    const stands = async () => (await held()) > 0.75 * LIMIT && agents.filter(isSilent).length > LINKS / 2;
    await waitFor(stands, { deadlineMs: 60_000, what: "the pool to be used up" });
    t.diagnostic(`${senders.length} callers, ${Math.round((await held()) / MIB)} of ${LIMIT / MIB} MiB are held`);
    t.diagnostic(await assertUnharmed(tenants));

    await using download = await connectThrough(blueListener, source.address);
    download.socket.resume();
    await waitFor(() => ended() > 0, { deadlineMs: 60_000, what: "links to be ended for a window of blue" });
    download.socket.destroy();
    t.diagnostic(`${ended()} links were ended`);
    t.diagnostic(await assertUnharmed(tenants));
  } finally {
    for (const { socket } of senders) socket.destroy();
    for (const { session } of agents) session.destroy();
  }
}

test("a link that stops acknowledging keeps nobody out of a cluster with limits.memory, and is given up for it", async (t) => {
  await using tenants = await startTwoTenants({ server: { "memory-limit": 1024 * MIB } });
  const { red, agentPort, callerPort, healthPort, target } = tenants;
  const listener = await red.listener("tls", callerPort);
  const held = async () => (await scrapePort(healthPort)).value("culvert_server_memory_held_bytes");
  const silent = await silentAgent(tenants, 0, 0, 24 * ACKNOWLEDGED);
  const sender = await connectThrough(listener, target);
  sendWithoutEnd(sender);
  const isSilent = () => silent.link.received > 24 * ACKNOWLEDGED;
  await waitFor(isSilent, { deadlineMs: 60_000, what: "the link to fall silent" });
  await waitFor(async () => (await held()) > 1.5 * MIB, { deadlineMs: 5_000, what: "the link to keep 1.5 MiB" });
  sender.socket.destroy();
  const onStream = (stream: Stream) => void answered(stream).catch(() => {});
  const healthy = await tenantAgent(red, agentPort, { agentId: "healthy", onStream });
  try {
    await red.write({ limits: { memory: "1MiB" } });
    const statuses: number[] = [];
    const begun = performance.now();
    while (!silent.session.closed && performance.now() - begun < 40_000) {
      statuses.push(await status(listener));
    }
    const seconds = Math.round((performance.now() - begun) / 1_000);
    t.diagnostic(`${statuses.length} CONNECTs in ${seconds} s`);
    assert.equal(silent.session.closed, true, `${await held()} bytes are held`);
    const answers = new Set(statuses.filter((answer) => answer !== 0));
    assert.deepEqual([...answers], [200]);
  } finally {
    for (const { session } of [silent, healthy]) session.destroy();
  }
});

/** Of one CONNECT; 0: no answer, since the link that it was given to does not move. */
async function status(listener: CallerListener): Promise<number> {
  const connecting = connectThrough(listener, "10.0.0.1:1", { deadlineMs: 500 });
  const connection = await connecting.catch(() => undefined);
  connection?.socket.destroy();
  return connection?.status ?? 0;
}
