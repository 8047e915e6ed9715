import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, type ClientRequest, request as requestHttp } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { request as requestHttps } from "node:https";
import { buffer, text } from "node:stream/consumers";
import { test } from "node:test";
import { WebSocket } from "ws";
import { portThrough } from "../harness/connect-port.ts";
import { Payload } from "../harness/payload.ts";
import { within } from "../harness/wait.ts";
import { startWorld, type Via, type World } from "../harness/world.ts";

const BYTES = 3_000_000;
const DEADLINE_MS = 20_000;

for (const via of ["uds", "tls"] as const) {
  test(`over ${via}, plain HTTP requests follow one another on one connection`, async () => {
    await using world = await startWorld({ targets: ["http"] });
    await using local = await portTo(world, "http", via);
    const agent = new Agent({ keepAlive: true });
    for (const bytes of [0, 1, BYTES]) {
      const body = new Payload().whole(bytes);
      const call = requestHttp({ host: local.host, port: local.port, agent, method: "POST", path: "/" });
      assert.ok((await answerTo(call, body)).equals(body), `${bytes} bytes`);
    }
    assert.equal(world.targets.http.accepted, 1);
    agent.destroy();
  });

  test(`over ${via}, HTTPS requests go to their target end to end`, async () => {
    await using world = await startWorld({ targets: ["https"] });
    await using local = await portTo(world, "https", via);
    const { cert: ca } = world.targets.https.certificate;
    const path = `/bytes/${BYTES}`;
    const calls = [1, 2, 3].map(() =>
      answerTo(requestHttps({ host: local.host, port: local.port, path, ca, agent: false })),
    );
    for (const body of await Promise.all(calls)) assert.ok(body.equals(new Payload().whole(BYTES)));
  });

  test(`over ${via}, HTTP/2 runs many requests on one connection`, async () => {
    await using world = await startWorld({ targets: ["http2"] });
    await using local = await portTo(world, "http2", via);
    const session = connectHttp2(`https://${local.address}`, { ca: world.targets.http2.certificate.cert });
    const wanted = Array.from({ length: 20 }, (_, turn) => `request ${turn}`);
    const bodies = wanted.map((body) => {
      const stream = session.request({ ":method": "POST", ":path": "/" });
      stream.end(body);
      return text(stream);
    });
    assert.deepEqual(await within(Promise.all(bodies), DEADLINE_MS, "the answers"), wanted);
    assert.equal(session.alpnProtocol, "h2");
    session.close();
    await within(once(session, "close"), DEADLINE_MS, "the session's end");
    assert.equal(world.targets.http2.accepted, 1);
  });

  test(`over ${via}, WebSocket messages keep their kind, size and order`, async () => {
    await using world = await startWorld({ targets: ["websocket"] });
    await using local = await portTo(world, "websocket", via);
    const client = new WebSocket(`ws://${local.address}/`);
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

/** A port that leads through the tunnel: clients are used as they are. */
function portTo<Name extends "http" | "https" | "http2" | "websocket">(world: World<Name>, name: Name, via: Via) {
  return portThrough(() => world.connect(name, { via }));
}

async function answerTo(call: ClientRequest, body?: Buffer): Promise<Buffer> {
  call.end(body);
  const [response] = await within(once(call, "response"), DEADLINE_MS, "the answer");
  assert.equal(response.statusCode, 200);
  return within(buffer(response), DEADLINE_MS, "the body");
}
