import assert from "node:assert/strict";
import { once } from "node:events";
import https from "node:https";
import net from "node:net";
import { test } from "node:test";
import tls from "node:tls";
import { listening } from "../../shared/basics/testing/wait.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { connectOnce } from "./connect.ts";

/** A certificate of proxy and target, and the demo's CONNECT through ports of this machine. */
async function place() {
  const authority = await Authority.create("demo CA");
  const { cert, key } = await authority.issue({ cn: "localhost", names: ["localhost"], usage: "server" });
  const caller = await authority.issue({ cn: "caller", usage: "client" });
  const demo = (port: number, target: number) => {
    const steps: string[] = [];
    const plan = {
      proxy: { port, ca: authority.cert, cert: caller.cert, key: caller.key },
      target: { host: "localhost", port: target, ca: authority.cert },
    };
    return { steps, done: connectOnce(plan, (text) => steps.push(text)).then(() => steps) };
  };
  return { cert, key, demo };
}

test("the one CONNECT is over when both sides have ended it, without a reset that the server's log would tell of", async (t) => {
  const { cert, key, demo } = await place();
  const target = await listening(
    t,
    https.createServer({ cert, key }, (_, response) => response.end("Hello\n")),
  );
  const story: string[] = [];
  const proxy = tls.createServer({ cert, key, allowHalfOpen: true }, (socket) => {
    socket.on("error", ({ message }) => story.push(message)).on("close", () => story.push("closed"));
    socket.once("data", () => {
      const onward = net.connect(target, "127.0.0.1", () =>
        socket.write("HTTP/1.1 200 Connection Established\r\n\r\n"),
      );
      onward.on("data", (chunk) => socket.write(chunk)).on("error", () => {});
      socket.on("data", (chunk) => onward.write(chunk));
      // The last bytes come after the caller has all that it asked for.
      socket.once("end", () => {
        story.push("the caller has ended");
        onward.end();
        socket.end();
      });
    });
  });
  const port = await listening(t, proxy);
  const steps = await demo(port, target).done;
  assert.match(steps.at(-1) ?? "", /^GET \/from-the-demo: HTTP\/1\.1 200 OK: "Hello"$/);
  assert.equal(story[0], "the caller has ended");
  await once(proxy.close(), "close");
  assert.deepEqual(story, ["the caller has ended", "closed"]);
});

test("a path that breaks below the TLS with the target is reported at once, and as what it is", async (t) => {
  const { cert, key, demo } = await place();
  const proxy = net.createServer((raw) => {
    raw.on("error", () => {});
    const socket = new tls.TLSSocket(raw, { isServer: true, cert, key });
    socket
      .on("error", () => {})
      .once("data", () => {
        socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
        socket.once("data", () => raw.resetAndDestroy()); // the target's handshake has begun
      });
  });
  const port = await listening(t, proxy);
  const { steps, done } = demo(port, 1);
  await assert.rejects(done, { code: "ECONNRESET" });
  assert.match(steps.at(-1) ?? "", /^CONNECT localhost:1 .*: HTTP\/1\.1 200 /);
});

test("a target that resets the connection after its whole answer does not spoil the CONNECT", async (t) => {
  const { cert, key, demo } = await place();
  const target = await listening(
    t,
    https.createServer({ cert, key }, (_, response) => response.end("Hello\n")),
  );
  const proxy = net.createServer({ allowHalfOpen: true }, (raw) => {
    const socket = new tls.TLSSocket(raw, { isServer: true, cert, key });
    socket
      .on("error", () => {})
      .once("data", () => {
        const onward = net.connect(target, "127.0.0.1", () => socket.write("HTTP/1.1 200 Established\r\n\r\n"));
        onward.on("data", (chunk) => socket.write(chunk)).on("error", () => {});
        socket.on("data", (chunk) => onward.write(chunk)).once("end", () => raw.resetAndDestroy());
      });
  });
  const port = await listening(t, proxy);
  const steps = await demo(port, target).done;
  assert.match(steps.at(-1) ?? "", /^GET \/from-the-demo: HTTP\/1\.1 200 OK: "Hello"$/);
});
