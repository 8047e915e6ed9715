import assert from "node:assert/strict";
import { once } from "node:events";
import net, { type AddressInfo, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import { DialFault } from "../../shared/faults/faults.ts";
import { testCertificate } from "../../shared/link/testing/ends.ts";
import { type LookOptions, lookAt, middleboxNames } from "./second-look.ts";
import { tlsFault } from "./tls-fault.ts";
import type { TunnelDial } from "./tunnel-steps.ts";

/** Without what ends a look that nobody answers, it would last for ever. */
const IN_TIME = { timeout: 10_000 };

async function lookedAt(t: TestContext, server: Server) {
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket) => sockets.add(socket.on("error", () => {})));
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const options: LookOptions = { host: "localhost", port, path: "/", tls: {} };
  return { options, open: () => net.connect(port, "127.0.0.1") };
}

test(
  "of a box that takes the handshake and never answers, the chain is seen when the time is over",
  IN_TIME,
  async (t) => {
    const { leaf } = await testCertificate();
    const time = new AbortController();
    const box = tls.createServer(leaf, (socket) => socket.on("error", () => {}).once("data", () => time.abort()));
    const { options, open } = await lookedAt(t, box);
    const seen = await lookAt(open(), options, time.signal);
    assert.deepEqual([seen.chain[0]?.subject, seen.time, seen.isCallersPort], ["CN=localhost", undefined, false]);
  },
);

test("a middlebox that does not answer the handshake is looked at until the time is over", IN_TIME, async (t) => {
  const time = new AbortController();
  const box = net.createServer((socket) => socket.once("data", () => time.abort(new Error("the time is over"))));
  const { options, open } = await lookedAt(t, box);
  await assert.rejects(lookAt(open(), options, time.signal), /the time is over/);
});

test("a middlebox to which the way took all the time is not looked at", IN_TIME, async (t) => {
  const { options, open } = await lookedAt(t, net.createServer());
  await assert.rejects(lookAt(open(), options, AbortSignal.abort(new Error("the time is over"))), /the time is over/);
});

test("a second look at what never answers ends within the time of a step, with the first error", IN_TIME, async (t) => {
  const { leaf } = await testCertificate();
  const box = tls.createServer(leaf, (socket) => socket.on("error", () => {}).resume());
  const { options, open } = await lookedAt(t, box);
  const dial = {
    ...{ at: "server:443", options: { ...options, timeoutMs: 200 }, open: async () => ({ socket: open() }) },
    ...{ credentials: {}, rule: { innerTls: "auto" } },
  } as unknown as TunnelDial;
  const cause = Object.assign(new Error("certificate has expired"), { code: "CERT_HAS_EXPIRED" });
  const ended = new DialFault("server_expired", "the server's certificate expired", { facts: { by: "server" }, cause });
  const { finding, message } = await tlsFault(ended, undefined, dial);
  assert.equal(finding.culprit, "server_expired");
  assert.match(message, /^the server's certificate expired/);
});

test("boxes are named by what they write into an answer; without any there is nothing to say", () => {
  assert.equal(middleboxNames({ server: "nginx", via: "1.1 proxy" }), ', server "nginx", via "1.1 proxy"');
  assert.equal(middleboxNames({ via: "1.1 one, 1.1 two" }), ', via "1.1 one, 1.1 two"');
  assert.equal(middleboxNames({ upgrade: "websocket" }), "");
  assert.equal(middleboxNames({ server: "\u001b\u0007 " }), "");
});

test("what boxes write is one line of bounded length, each name apart", () => {
  const named = middleboxNames({ server: "s".repeat(5_000), via: "1.1 a\u001b[31m\r\nb\u00e9" });
  assert.equal(named, `, server "${"s".repeat(57)}...", via "1.1 a [31m b"`);
  const several = { server: ["one", "two"] } as unknown as { readonly server: string };
  assert.equal(middleboxNames(several), ', server "one,two"');
});

test("a middlebox that repeats our token is not quoted", () => {
  const named = middleboxNames({ server: "nginx", via: "asked with Bearer abcdefghijkl.mnop" }, "abcdefghijkl.mnop");
  assert.equal(named, ', server "nginx", via "(not shown: it repeats our token)"');
});
