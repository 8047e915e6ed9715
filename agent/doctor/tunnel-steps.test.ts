import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import net from "node:net";
import { type TestContext, test } from "node:test";
import { HELLO, KEEPALIVE_MS, LinkServer, testCertificate, welcome } from "../../shared/link/testing/ends.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { optionsOf } from "../testing/context.ts";
import { Path } from "../uplink/path.ts";
import { type StepFailed, StepLog } from "./report.ts";
import type { TunnelDial } from "./tls-fault.ts";
import { dialTunnel, middleboxNames } from "./tunnel-steps.ts";

/** The steps to a server that welcomes so; `onUpgrade`: it answers by itself. */
async function stepsTo(
  t: TestContext,
  { serverId = "s1", onUpgrade }: { serverId?: string; onUpgrade?: (request: IncomingMessage) => string },
) {
  const server = await LinkServer.start({ welcome: () => welcome({ serverId }) });
  t.after(() => server[Symbol.asyncDispose]());
  if (onUpgrade !== undefined) {
    server.server.removeAllListeners("upgrade");
    server.server.on("upgrade", (request, socket) => socket.end(onUpgrade(request), "latin1"));
  }
  const { ca } = await testCertificate();
  const log = new StepLog(() => {});
  const { host, port } = server;
  const open = async () => ({ socket: net.connect(port, host) });
  const dial: TunnelDial = {
    context: {
      options: optionsOf({ keepaliveMs: KEEPALIVE_MS }),
      server: { host: "localhost", port, path: "/" },
      hello: HELLO,
      route: { open, worked: () => undefined, failed: () => {} },
      path: new Path({ maxCarrierAgeMs: 0 }),
      graceMs: 0,
    },
    terms: { credentials: { ca }, timeoutMs: 5_000, signal: new AbortController().signal },
    at: "the server",
    onTime: () => {},
  };
  await dialTunnel(dial, log).then(
    ({ link }) => link.destroy(),
    (_error: StepFailed) => {},
  );
  return (name: string) => log.steps.find(({ step }) => step === name);
}

test("what the server calls itself is one line of printable signs", async (t) => {
  const of = await stepsTo(t, { serverId: "s\u001b[31m\r\n1" });
  assert.equal(of("upgrade")?.detail, "101 Switching Protocols");
  assert.equal(of("admission")?.detail, '"a1" is welcome at server "s [31m 1"');
});

test("an answer with names of boxes again and again, and bytes that are none of ASCII, breaks no line", async (t) => {
  const of = await stepsTo(t, {
    onUpgrade: ({ headers }) => {
      const key = `${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`; // RFC 6455 §1.3
      const accept = createHash("sha1").update(key).digest("base64");
      const fields = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        `Sec-WebSocket-Accept: ${accept}`,
        `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`,
        "Server: one \u00ff",
        "Server: two",
        "Via: 1.1 a",
        `Via: 1.1 ${"b".repeat(1_000)}`,
      ];
      return `HTTP/1.1 101 Switching Protocols\r\n${fields.join("\r\n")}\r\n\r\n`;
    },
  });
  const { state, detail } = of("upgrade") ?? {};
  assert.equal(state, "passed", detail);
  assert.equal(detail, `101 Switching Protocols, server "one", via "1.1 a, 1.1 ${"b".repeat(46)}..."`);
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
