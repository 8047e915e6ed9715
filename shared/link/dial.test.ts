import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { DialFault, isUnknownIssuer } from "../faults/faults.ts";
import { UNRECOGNIZED_NAME_ALERT } from "../listen/client-hello.ts";
import { Authority } from "../pki/certificates.ts";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import type { Passage } from "./dial.ts";
import { HELD_BACK, SECURING, timeoutFault } from "./dial-faults.ts";
import { dial, failure, HELLO, Inbox, LinkServer, RawServer, testCertificate } from "./testing/ends.ts";

test("each step that takes too long is named, and its socket closed", async (t) => {
  const sockets = new Set<net.Socket>();
  const mute = net.createServer((socket) => {
    sockets.add(socket.on("close", () => sockets.delete(socket)).on("error", () => {}));
    socket.resume();
  });
  t.after(() => mute.close());
  await once(mute.listen(0, "127.0.0.1"), "listening");
  const { port } = mute.address() as net.AddressInfo;
  await using tlsOnly = await RawServer.start(() => {});
  await using noWelcome = await RawServer.start((socket, upgrade) => socket.write(upgrade));
  const timeoutMs = 1_500; // for the steps before it, on a busy machine
  const late = await Promise.all([port, tlsOnly.port, noWelcome.port].map((at) => failure(at, { timeoutMs })));
  assert.deepEqual(
    late.map(({ message }) => message),
    [
      timeoutFault(
        { step: SECURING, host: "server", proxy: undefined },
        "no tunnel within 1.5 s: timed out in the TLS handshake",
      ).message,
      `no tunnel within 1.5 s: timed out waiting for the upgrade: ${HELD_BACK.no_answer}`,
      `no tunnel within 1.5 s: timed out waiting for welcome: ${HELD_BACK.held_back}`,
    ],
  );
  assert.deepEqual(
    late.slice(1).map((error) => error instanceof DialFault && error.fault),
    ["no_answer", "held_back"],
  );
  const silent = await failure(noWelcome.port, { keepaliveMs: 40, timeoutMs: 5_000 });
  assert.match(silent.message, /^nothing was received for 0\.\d s waiting for welcome: the upgrade was answered/);
  assert.equal(silent instanceof DialFault && silent.fault, "held_back");
  // TEST-NET-1 goes nowhere (RFC 5737); a sandbox may also say so at once.
  const nowhere = await failure(9, { address: { host: "192.0.2.1", port: 9 }, timeoutMs });
  assert.match(nowhere.message, /timed out connecting|\(connecting\)/);
  await until(() => sockets.size + tlsOnly.sockets.size + noWelcome.sockets.size === 0);
});

test("an abort ends the attempt at any step", async () => {
  await using server = await RawServer.start((socket, upgrade) => socket.write(upgrade));
  const before = AbortSignal.abort();
  assert.equal((await failure(server.port, { signal: before })).message, "the attempt was cancelled");
  const during = new AbortController();
  const attempt = failure(server.port, { signal: during.signal });
  await until(() => server.sockets.size > 0);
  during.abort();
  assert.equal((await attempt).message, "the attempt was cancelled");
  await until(() => server.sockets.size === 0);
});

test("a refused connection, an unknown name and an untrusted certificate each have an error that says what and where", async () => {
  const free = net.createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address() as net.AddressInfo;
  free.close();
  await once(free, "close");
  const refused = await failure(port);
  assert.match(refused.message, /^connect ECONNREFUSED 127\.0\.0\.1:\d+ \(connecting\)$/);
  assert.equal((refused as NodeJS.ErrnoException).code, "ECONNREFUSED");
  // Both families of a name are tried: Node's error for that has no words of its own.
  assert.match((await failure(port, { address: { host: "localhost", port } })).message, /ECONNREFUSED.*\(connecting\)/);
  const nobody = await failure(port, { address: { host: "nobody.invalid", port } });
  assert.match(nobody.message, /nobody\.invalid \(connecting\)/);

  await using server = await LinkServer.start();
  const stranger = await Authority.create("stranger");
  const untrusted = await failure(server.port, { tls: { ca: stranger.cert }, trust: { ca: stranger.cert } });
  assert.ok(isUnknownIssuer(untrusted));
  assert.equal(untrusted.facts.by, "test");
  assert.match(untrusted.message, /^the server's certificate is signed by "test", which is not in --ca-cert: /);
  for (const host of ["elsewhere.test", "127.0.0.2"]) {
    const wrong = await failure(server.port, { host });
    assert.ok(wrong instanceof DialFault && wrong.fault === "wrong_name");
    assert.ok(wrong.message.includes(`not for ${host}: name the server so in --server`), wrong.message);
  }
  await until(() => server.sockets.size === 0);
  const { ca } = await testCertificate();
  assert.ok((await dial(server.port, { host: "127.0.0.1", tls: { ca } })).link);
});

test("verification holds even where the environment turns it off", async () => {
  await using server = await LinkServer.start();
  Object.assign(process.env, { NODE_TLS_REJECT_UNAUTHORIZED: "0" });
  try {
    assert.ok(isUnknownIssuer(await failure(server.port, { tls: {} })));
  } finally {
    Reflect.deleteProperty(process.env, "NODE_TLS_REJECT_UNAUTHORIZED");
  }
});

test("a server name that the port does not serve has an error of its own, and so has an address in place of a name", async () => {
  const refuses = net.createServer((socket) => {
    socket.on("error", () => {}).once("data", () => socket.end(UNRECOGNIZED_NAME_ALERT));
  });
  await once(refuses.listen(0, "127.0.0.1"), "listening");
  const { port } = refuses.address() as net.AddressInfo;
  assert.match(
    (await failure(port, { host: "nobody.test" })).message,
    /^nobody there has the name "nobody\.test" \(SNI\)/,
  );
  assert.match((await failure(port, { host: "127.0.0.1" })).message, /^the server is found by its name \(SNI\)/);
  refuses.close();
});

test("after the end of a link nothing keeps a process alive", async () => {
  await using server = await LinkServer.start();
  const { ca } = await testCertificate();
  const script = `
    import { dialCarrier } from ${JSON.stringify(source("./dial.ts", import.meta.url).href)};
    import { Link } from ${JSON.stringify(source("./link.ts", import.meta.url).href)};
    const { port, ca, hello, how } = JSON.parse(process.env.TRY);
    const { carrier } = await dialCarrier({ host: "localhost", port, address: { host: "127.0.0.1", port }, path: "/x",
      tls: { ca }, hello: () => hello, keepaliveMs: 20000, timeoutMs: 5000 });
    const link = new Link("l", "r", carrier, { graceMs: 0, replayBytes: 65536 });
    link.start({ onBytes() {}, onWritable() {}, onClosed() { process.stdout.write(String(performance.now())); } });
    link[how]();
    process.on("exit", () => process.stdout.write(" " + performance.now()));
  `;
  await Promise.all(
    ["end", "destroy"].map(async (how, index) => {
      void until(() => server.results[index] !== undefined).then(async () =>
        (await server.link(index)).start(new Inbox()),
      );
      const child = spawn(process.execPath, [...RUN_SOURCES, "--input-type=module", "-e", script], {
        env: { ...process.env, TRY: JSON.stringify({ port: server.port, ca, hello: HELLO, how }) },
        stdio: ["ignore", "pipe", "inherit"],
      });
      let out = "";
      child.stdout.on("data", (chunk) => {
        out += chunk;
      });
      assert.deepEqual(await once(child, "close"), [0, null]);
      const [closed, exited] = out.split(" ").map(Number);
      assert.ok((exited as number) - (closed as number) < 500, `${how}: ${out}`);
    }),
  );
});

test("what opens the connection in place of TCP is aborted at the deadline, and its own error is the reason", async () => {
  const why = new Error("the proxy did not answer");
  const stuck = (signal: AbortSignal) =>
    new Promise<Passage>((_, reject) => signal.addEventListener("abort", () => reject(why), { once: true }));
  assert.equal(await failure(9, { open: stuck, timeoutMs: 50 }), why);
  assert.equal(await failure(9, { open: () => Promise.reject(why) }), why);
  const cancelled = await failure(9, { open: stuck, signal: AbortSignal.timeout(50) });
  assert.equal(cancelled.message, "the attempt was cancelled");
});

test("a connection that opens after the attempt has ended is closed", async () => {
  await using server = await RawServer.start(() => {});
  const late = (signal: AbortSignal) =>
    new Promise<Passage>((resolve) => {
      signal.addEventListener("abort", () => {
        const socket = net.connect(server.port, "127.0.0.1").on("error", () => {});
        socket.once("connect", () => resolve({ socket }));
      });
    });
  assert.match((await failure(9, { open: late, timeoutMs: 50 })).message, /no tunnel within 0\.05 s/);
  await until(() => server.sockets.size === 0);
});

test("a connection that another one has opened carries TLS, upgrade and hello", async () => {
  await using server = await LinkServer.start();
  const open = async () => {
    const socket = net.connect(server.port, "127.0.0.1");
    await once(socket, "connect");
    return { socket };
  };
  const { carrier } = await dial(9, { open });
  carrier.destroy(new Error("the test is over"));
});

test("what is no TLS is the port's fault, and behind a proxy as well the proxy's, whatever it says", async (t) => {
  const proxy = { at: "http://proxy.corp:3128", from: "--proxy" };
  for (const words of ["HTTP/1.1 200 OK\r\n\r\n<title>Guest login</title>", "SSH-2.0-OpenSSH_9.6\r\n"]) {
    const other = net.createServer((socket) => {
      socket.on("error", () => {}).once("data", () => socket.end(words));
    });
    t.after(() => other.close());
    await once(other.listen(0, "127.0.0.1"), "listening");
    const { port } = other.address() as net.AddressInfo;
    const through = (passed?: typeof proxy) =>
      failure(port, { open: async () => ({ socket: net.connect(port, "127.0.0.1"), proxy: passed }) });
    const behind = await through(proxy);
    assert.ok(behind instanceof DialFault && behind.fault === "no_tls");
    assert.deepEqual(behind.facts, { by: proxy.at, proxyFrom: proxy.from });
    assert.equal(
      behind.message,
      "the proxy http://proxy.corp:3128 has opened the connection, and what answers there speaks no TLS: the port in --server may be a wrong one, or the proxy shows a page of its own (a login)",
    );
    assert.match((await through()).message, /^what answers there does not speak TLS: check the port in --server/);
  }
});

test("the upgrade for an open link names it, for a new one nothing, and no id makes another header", async () => {
  const asked: string[] = [];
  await using server = await RawServer.start((socket, _upgrade, request) => {
    asked.push(request);
    socket.end("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  });
  const headers = { authorization: "Bearer t" };
  for (const link of ["a/1", undefined, "a/1\r\nX: y", "a /1", "\u00e4/1"])
    await failure(server.port, { headers, link });
  assert.deepEqual(
    asked.map((request) => request.match(/^(culvert-link|x): .*$/gim)),
    [["culvert-link: a/1"], null, null, null, null],
  );
  assert.ok(asked.every((request) => /^authorization: Bearer t\r$/m.test(request)));
});
