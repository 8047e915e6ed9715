import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:http2";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { Payload } from "../harness/payload.ts";
import { callerTls } from "../harness/pki-files.ts";
import { startSlowLine } from "../harness/slow-line.ts";
import { startWorld } from "../harness/world.ts";

const LINE = { bytesPerSecond: 20_000, queueBytes: 64 * 1024, rttMs: 300 };
const CONNECTS = 5;
const BYTES = 4_000;

test("CONNECTs of one HTTP/2 connection are whole over a line of 20 kB/s", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  const port = world.server.addresses.callers?.port ?? 0;
  await using line = await startSlowLine({ host: "127.0.0.1", port }, LINE);
  const tls = { ...callerTls(world.dir.path), servername: "localhost", ALPNProtocols: ["h2"] };
  const socket = connectTls({ host: line.host, port: line.port, ...tls });
  const session = connect("https://localhost", { createConnection: () => socket });
  try {
    const echoes = Array.from({ length: CONNECTS }, async (_, seed) => {
      const stream = session.request({ ":method": "CONNECT", ":authority": world.targets.echo.address });
      const [headers] = await once(stream, "response");
      assert.equal(headers[":status"], 200);
      const sent = new Payload(seed).whole(BYTES);
      stream.end(sent);
      assert.ok((await buffer(stream)).equals(sent));
    });
    await Promise.all(echoes);
  } finally {
    session.destroy();
  }
});
