import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { PREFACE } from "../../shared/node/testing/http2-frames.ts";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { startAgentProcess } from "../harness/cluster-processes.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { startFlood } from "../harness/flood.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { TARGETS } from "../harness/targets.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";

/** Floods that end their own session. */
const ENDED = [
  "rapid resets",
  "rapid resets of refused CONNECTs",
  "refused CONNECTs",
  "malformed CONNECTs",
  "CONTINUATION without end",
  "empty CONTINUATION",
  "SETTINGS",
  "acknowledgements of SETTINGS",
  "PING",
  "answers to no PING",
  "empty DATA",
  "RST_STREAM of streams that never were",
  "CONNECTs, and reads nothing",
  "refused CONNECTs, and reads nothing",
  "PING, and reads nothing",
  "SETTINGS, and reads nothing",
];

/** Floods that cost no more than as many bytes of an honest caller, and may go on. */
const BORNE = [
  "DATA of one byte",
  "DATA for a stream that has ended",
  "windows of one byte",
  "WINDOW_UPDATE of the connection",
  "PRIORITY",
  "RST_STREAM of streams that have ended",
  "unknown frames",
  "headers that are references to a large one",
  "headers over the limit",
];

/** At each change one of each kind: what JavaScript counts, what nghttp2 counts, what is unread, and what is borne. */
const USUAL = [
  "rapid resets",
  "CONTINUATION without end",
  "refused CONNECTs, and reads nothing",
  "windows of one byte",
  "headers that are references to a large one",
];

describe("a caller over HTTP/2 that floods", () => {
  let tenants: TwoTenants;

  before(async () => {
    tenants = await startTwoTenants({ process: GROWTH_MEASURED });
  });
  after(() => tenants?.[Symbol.asyncDispose]());

  for (const kind of [...ENDED, ...BORNE]) {
    if (!WHOLE_MATRICES && !USUAL.includes(kind)) continue;
    const end = ENDED.includes(kind) ? "ends its own session, and" : "may go on, but";
    test(`its ${kind}: it ${end} holds up no other cluster`, async (t) => {
      const { red, callerPort: port, agentPort } = tenants;
      await using _agent = await startAgentProcess(red, agentPort);
      await using source = await TARGETS.source();
      await using sink = await TARGETS.sink();
      const tls = { ca: red.ca, servername: red.sni, ...(await red.callerPair) };
      const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
      await using flood = await startFlood("http2", { port, tls, kind, source: source.address, sink: sink.address });
      t.diagnostic(await assertUnharmed(tenants, { windows: 8 }));
      const { opened, cut, frames, mebibytes } = await flood.stop();
      const grown = await growth.assertBounded();
      t.diagnostic(`${opened} sessions, ${cut} ended, ${frames} frames, ${Math.round(Number(mebibytes))} MiB`);
      t.diagnostic(`grown by ${Math.round(grown / 2 ** 20)} MiB`);
      if (ENDED.includes(kind)) assert.ok(Number(cut) > 0, "the session ends");
      else assert.ok(Number(mebibytes) > 1, "the flood flows");
    });
  }

  test("prefaces in numbers, without a certificate, hold up no other cluster", async (t) => {
    const { red, callerPort: port } = tenants;
    const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
    const request = PREFACE.toString("latin1");
    await using flood = await startFlood("pipelined", {
      ...{ port, servername: red.sni, connections: 16, request, onceBytes: 64 * 1024 },
    });
    t.diagnostic(await assertUnharmed(tenants, { ...BESIDE_ANYBODY, windows: 8 }));
    await growth.assertBounded();
    assert.ok(Number(flood.counts["opened"]) > 100, `${flood.counts["opened"]} connections were opened`);
  });
});
