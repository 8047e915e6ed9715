import assert from "node:assert/strict";
import { type ClientHttp2Session, connect } from "node:http2";
import { after, before, describe, test } from "node:test";
import { connect as connectTls } from "node:tls";
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
  "headers that are references to a large one",
  "headers over the limit",
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
];

/** At each change one of each kind: what JavaScript counts, what nghttp2 counts, what is unread, and what is borne. */
const USUAL = [
  "rapid resets",
  "CONTINUATION without end",
  "refused CONNECTs, and reads nothing",
  "windows of one byte",
  "headers that are references to a large one",
];

/** Streams that the document of the hostile cluster allows. */
const STREAMS = 1_000;

describe("a caller over HTTP/2 that floods", () => {
  let tenants: TwoTenants;

  before(async () => {
    tenants = await startTwoTenants({ process: GROWTH_MEASURED, red: { limits: { streams: STREAMS } } });
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
      // Each has a name of its own: a caller that comes again after a flood has to wait.
      const pair = await red.authority.issue({ cn: kind, o: ["callers:red"], usage: "client" });
      const tls = { ca: red.ca, servername: red.sni, ...pair };
      const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
      await using flood = await startFlood("http2", { port, tls, kind, source: source.address, sink: sink.address });
      t.diagnostic(await assertUnharmed(tenants, { windows: 6 }));
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
    t.diagnostic(await assertUnharmed(tenants, { ...BESIDE_ANYBODY, windows: 6 }));
    await growth.assertBounded();
    assert.ok(Number(flood.counts["opened"]) > 100, `${flood.counts["opened"]} connections were opened`);
  });

  test("5000 CONNECTs at once are no flood: each is answered, those beyond the cluster's limit with a sentence", async () => {
    const { red, callerPort: port, agentPort } = tenants;
    await using _agent = await startAgentProcess(red, agentPort);
    await using sink = await TARGETS.sink();
    const tls = { ca: red.ca, servername: red.sni, ...(await red.callerPair) };
    const socket = connectTls({ port, host: "127.0.0.1", ALPNProtocols: ["h2"], ...tls });
    const session = connect("https://red", { createConnection: () => socket });
    try {
      const answers = await Promise.all(Array.from({ length: 5_000 }, () => answerTo(session, sink.address)));
      const of = (status: number) => answers.filter((answer) => answer.startsWith(`${status} `));
      assert.deepEqual(answers.filter((answer) => !/^(200|429) /.test(answer)).slice(0, 3), []);
      assert.deepEqual([of(200).length, of(429).length], [STREAMS, 5_000 - STREAMS]);
      assert.match(of(429)[0] ?? "", new RegExp(`${STREAMS} connections are open`));
      assert.equal(session.closed, false);
    } finally {
      session.destroy();
    }
  });
});

/** Status and body, or why there is none; a tunnel stays open. */
async function answerTo(session: ClientHttp2Session, authority: string): Promise<string> {
  const stream = session.request({ ":method": "CONNECT", ":authority": authority });
  const status = await new Promise<number | Error>((resolve) => {
    stream.once("response", ({ ":status": status = 0 }) => resolve(status));
    stream.on("error", resolve);
  });
  if (status instanceof Error) return status.message;
  if (status === 200) return "200 ";
  let body = "";
  stream.setEncoding("utf8").on("data", (piece: string) => (body += piece));
  // Node's client may take the reset after the answer for an end that came too early.
  // And what ends its session inside this event makes Node 20 write frames of nothing without end (docs/node.md).
  await new Promise((resolve) => stream.once("close", () => setImmediate(resolve)));
  return `${status} ${body}`;
}
