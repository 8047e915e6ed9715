import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { request } from "node:https";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { WebSocket } from "ws";
import { Payload } from "../harness/payload.ts";
import type { TlsTarget } from "../harness/targets/web.ts";
import { within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const BYTES = 3_000_000;
const DEADLINE_MS = 20_000;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, HTTPS requests go to their target end to end`, async () => {
    await using world = await startWorld({ targets: ["https"] });
    const socket = await throughTls(world, via, world.targets.https, "http/1.1");
    const call = request({ path: `/bytes/${BYTES}`, host: "localhost", createConnection: () => socket });
    call.end();
    const [response] = await within(once(call, "response"), DEADLINE_MS, "the answer");
    const body = await buffer(response);
    assert.equal(response.statusCode, 200);
    assert.ok(body.equals(whole(BYTES)));
  });

  test(`over ${via}, HTTP/2 runs many requests on one connection`, async () => {
    await using world = await startWorld({ targets: ["http2"] });
    const socket = await throughTls(world, via, world.targets.http2, "h2");
    const session = connectHttp2("https://localhost", { createConnection: () => socket });
    const bodies = Array.from({ length: 20 }, async (_, turn) => {
      const stream = session.request({ ":method": "POST", ":path": "/" });
      stream.end(`request ${turn}`);
      return text(stream);
    });
    const answers = await within(Promise.all(bodies), DEADLINE_MS, "the answers");
    assert.deepEqual(
      answers,
      bodies.map((_, turn) => `request ${turn}`),
    );
    session.close();
    await within(once(session, "close"), DEADLINE_MS, "the session's end");
  });

  test(`over ${via}, WebSocket messages keep their kind, size and order`, async () => {
    await using world = await startWorld({ targets: ["websocket"] });
    const { socket } = await world.connect("websocket", { via });
    const client = new WebSocket("ws://localhost/", { createConnection: () => socket });
    socket.resume(); // it was read by hand for the answer to CONNECT
    await within(once(client, "open"), DEADLINE_MS, "the upgrade");
    const sent = ["first", Buffer.alloc(1), Buffer.alloc(200_000, "culvert"), "last"];
    const received: (string | Buffer)[] = [];
    client.on("message", (data: Buffer, isBinary: boolean) => received.push(isBinary ? data : data.toString()));
    for (const message of sent) client.send(message);
    client.close(1000, "done");
    const [code] = await within(once(client, "close"), DEADLINE_MS, "the closing handshake");
    assert.equal(code, 1000);
    assert.deepEqual(received, sent);
  });
}

async function throughTls(
  world: { connect(target: string, options: { via: "uds" | "tls" }): Promise<{ socket: import("node:net").Socket }> },
  via: "uds" | "tls",
  target: TlsTarget,
  protocol: string,
) {
  const { socket } = await world.connect(target.address, { via });
  const secure = connectTls({
    socket,
    ca: target.certificate.cert,
    servername: "localhost",
    ALPNProtocols: [protocol],
  });
  await within(once(secure, "secureConnect"), DEADLINE_MS, "TLS with the target");
  assert.equal(secure.alpnProtocol, protocol);
  return secure;
}

function whole(bytes: number): Buffer {
  const payload = new Payload();
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes; at += parts.at(-1)?.length ?? 0) parts.push(payload.at(at, bytes - at));
  return Buffer.concat(parts);
}
