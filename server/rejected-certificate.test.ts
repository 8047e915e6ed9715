import assert from "node:assert/strict";
import { connect as dialPlain, type Socket } from "node:net";
import { test } from "node:test";
import { type ConnectionOptions, connect as dialTls } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import { type Line, pki, start } from "./testing/server.ts";

const HANDSHAKE = "TLS handshake failed";
const LEFT = "connection ended after its TLS handshake, without a request";

/** Connects, and goes when it has seen what it is shown. */
async function look(port: number | undefined, more: ConnectionOptions): Promise<void> {
  const socket = dialTls({ host: "127.0.0.1", port, ...more });
  socket.on("secureConnect", () => socket.end()).on("error", () => {});
  await closed(socket);
}

function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

async function told(lines: readonly Line[], ...messages: string[]): Promise<Line> {
  const find = () => lines.find(({ msg }) => messages.includes(msg));
  await until(() => find() !== undefined);
  return find() as Line;
}

for (const listener of ["callers", "agents"] as const) {
  const own = () => (listener === "callers" ? pki.caller : pki.agent);

  test(`a client of the ${listener}' port that does not accept the server's certificate is reported, whenever it looked`, async () => {
    const { cert, key } = own();
    for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
      await using server = await start();
      await look(server.addresses[listener]?.port, { ca: pki.other.cert, cert, key, maxVersion });
      // Node looks about when it sends its last message in TLS 1.3, and behind it in 1.2.
      const line = await told(server.lines, ...(maxVersion === "TLSv1.3" ? [HANDSHAKE, LEFT] : [LEFT]));
      assert.equal(line.level, "info");
      assert.equal(line["listener"], listener);
      assert.match(String(line["remote"]), /127\.0\.0\.1:\d+$/);
      assert.match(String(line["reason"]), /a client that does not accept our certificate may leave like this/);
    }
  });

  test(`who leaves the ${listener}' port after its handshake is logged at debug if it has brought no certificate`, async () => {
    await using server = await start();
    await look(server.addresses[listener]?.port, { ca: pki.ca.cert });
    assert.equal((await told(server.lines, LEFT)).level, "debug");
  });
}

test("who leaves in the midst of its request is reported as that", async () => {
  await using server = await start();
  for (const [port, { cert, key }, leave] of [
    [server.addresses.agents?.port, pki.agent, (socket: Socket) => socket.end()],
    [server.addresses.callers?.port, pki.caller, (socket: Socket) => socket.destroy()],
  ] as const) {
    const before = server.lines.length;
    const socket = dialTls({ host: "127.0.0.1", port, ca: pki.ca.cert, cert, key });
    socket.on("secureConnect", () => socket.write("CONNE", () => leave(socket))).on("error", () => {});
    socket.resume();
    await closed(socket);
    const after = () => server.lines.slice(before);
    await until(() => after().some(({ msg }) => /without a whole request|(request|agent) refused/.test(msg)));
    assert.ok(!after().some(({ msg }) => msg === LEFT));
  }
});

test("who is sent away has not left without a request", async () => {
  await using server = await start({ handshakeTimeoutMs: 200, headerTimeoutMs: 200 });
  const { cert, key } = pki.caller;
  for (const port of [server.addresses.callers?.port, server.addresses.agents?.port]) {
    for (const words of ["", "GET / HTTP/1.1\r\n\r\n"]) {
      const socket = dialTls({ host: "127.0.0.1", port, ca: pki.ca.cert, cert, key });
      socket.on("secureConnect", () => socket.write(words)).on("error", () => {});
      socket.resume();
      await closed(socket);
    }
  }
  assert.equal(server.lines.filter(({ msg }) => msg === LEFT).length, 0);
});

test("a client that speaks plain HTTP to a TLS port is reported in words", async () => {
  await using server = await start();
  const socket = dialPlain({ host: "127.0.0.1", port: server.addresses.callers?.port ?? 0 });
  socket.on("error", () => {}).end("GET / HTTP/1.1\r\n\r\n");
  const line = await told(server.lines, HANDSHAKE);
  assert.match(String(line["reason"]), /^the client speaks plain HTTP.*\[ERR_SSL_HTTP_REQUEST\]$/);
});
