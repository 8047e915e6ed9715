import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import tls from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { verifyPeer } from "../tls/identity.ts";
import type { LinkCarrier } from "./carrier.ts";
import { type ControlMessage, parseControl } from "./control.ts";
import { LinkDuplex } from "./inner-pipe.ts";
import { InnerServers, type InnerTls, PeerFault, UntrustedLink } from "./inner-tls.ts";
import { Inbox, welcome } from "./testing/ends.ts";
import { dial, type End, link, pki, SOURCE, TIMEOUT_MS } from "./testing/inner-ends.ts";

/** Both ends of an inner TLS. */
async function joined(t: TestContext, { by }: { by?: CertificateAndKey | "nobody" } = {}) {
  const { authority, agent, material } = await pki();
  const { cert, key } = by === "nobody" ? {} : (by ?? agent);
  const ends = link();
  const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
  const [near, far] = await Promise.all([dial(ends.agent, { ca: authority.cert, cert, key }), accepted]);
  t.after(() => near.pipe.destroy());
  return { near, far, ends };
}

/** Starts delivery at one end. */
function inboxOf({ pipe }: InnerTls): Inbox {
  const inbox = new Inbox();
  pipe.start(inbox);
  return inbox;
}

test("both ends are authenticated, exchange first messages and then bytes, and have one key", async (t) => {
  const { near, far } = await joined(t);
  assert.equal(verifyPeer(far.socket, undefined).identity?.cn, "agent");
  near.pipe.sendMessage({ type: "hello", version: 1, agentId: "a", instance: "i", software: "test" });
  near.pipe.write([Buffer.from("behind the words")], 16);
  assert.match(await far.pipe.readMessage(), /^\{"type":"hello".*\}$/);
  const inbox = inboxOf(far);
  await until(() => inbox.text === "behind the words");
  assert.equal(far.key.accepts(near.key.prove({ link: "s/1", received: 7 })), true);
  near.pipe.end();
  assert.equal(await inbox.closed, undefined);
});

test("a client with a certificate of another CA, or without one, is not authenticated", async (t) => {
  const stranger = await (await Authority.create("ca")).issue({ cn: "agent", usage: "client" });
  const { far } = await joined(t, { by: stranger });
  assert.match(verifyPeer(far.socket, undefined).refusal ?? "", /not signed by a CA/);
  const silent = await joined(t, { by: "nobody" });
  assert.match(verifyPeer(silent.far.socket, undefined).refusal ?? "", /no client certificate/);
});

test("of many handshakes at once each link gets its own, and none comes from one that has failed", async () => {
  const { authority, material } = await pki();
  const servers = new InnerServers();
  const names = Array.from({ length: 24 }, (_, number) => `agent-${number}`);
  const pairs = await Promise.all(names.map((cn) => authority.issue({ cn, usage: "client" })));
  for (let round = 0; round < 2; round++) {
    const met = pairs.map(async ({ cert, key }, number) => {
      const ends = link();
      const accepted = servers.accept(ends.server, material, TIMEOUT_MS, SOURCE);
      if (number % 3 === 0) {
        ends.agent.write([Buffer.from("no handshake")]);
        return assert.rejects(accepted);
      }
      const [near, far] = await Promise.all([dial(ends.agent, { ca: authority.cert, cert, key }), accepted]);
      assert.equal(verifyPeer(far.socket, undefined).identity?.cn, names[number]);
      assert.equal(far.key.accepts(near.key.prove({ link: "s/1", received: number })), true);
      near.pipe.destroy();
    });
    await Promise.all(met);
  }
});

test("an agent that has an address in place of a name verifies the certificate by that", async () => {
  const { authority, material } = await pki();
  const ends = link();
  const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE).catch(() => {});
  const reason = /inner TLS: the server's certificate is for server\.example, not for 10\.0\.0\.1: /;
  await assert.rejects(dial(ends.agent, { ca: authority.cert }, { host: "10.0.0.1" }), reason);
  await accepted;
});

test("what is no inner TLS is refused: another protocol inside, noise, and more bytes than a handshake has", async () => {
  const { material, authority } = await pki();
  const noise: [string, (end: End) => void, RegExp][] = [
    ["http", (end) => end.write([Buffer.from("GET / HTTP/1.1\r\n\r\n")]), /inner TLS: /],
    ["40 KiB", (end) => end.write([Buffer.alloc(40 * 1024, 0x16)]), /too many bytes/],
    ["an end", (end) => end.end(), /closed inside/],
  ];
  for (const [what, say, reason] of noise) {
    const ends = link();
    const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
    say(ends.agent);
    await assert.rejects(accepted, (error) => error instanceof PeerFault && reason.test(error.message), what);
  }
  // The handshake of the TLS outside, brought here by somebody in between: it names another protocol.
  const ends = link();
  const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
  const outside = tls.connect({
    socket: new LinkDuplex(ends.agent, 1 << 20),
    ca: authority.cert,
    servername: "server.example",
    ALPNProtocols: ["http/1.1"],
  });
  outside.on("error", () => {});
  await assert.rejects(accepted);
});

test("a handshake that stands still ends in time, and one that is cancelled at once", async () => {
  const { material } = await pki();
  await assert.rejects(new InnerServers().accept(link().server, material, 20, SOURCE), /took too long/);
  const abort = new AbortController();
  const dialled = dial(link().agent, {}, { signal: abort.signal });
  abort.abort();
  await assert.rejects(dialled, /cancelled/);
});

test("a private key of ours that cannot be used ends the link, and is not the peer's fault", async () => {
  const { material } = await pki();
  const key = "no key";
  const { server, agent } = link();
  const accepted = new InnerServers().accept(server, { ...material, key }, TIMEOUT_MS, SOURCE);
  await assert.rejects(accepted, (error) => !(error instanceof PeerFault));
  assert.equal(server.publicReason, "inner TLS has ended");
  await assert.rejects(dial(agent, { cert: material.cert, key }));
  assert.equal(agent.publicReason, "inner TLS has ended");
});

test("what ends the link ends the pipe, with its reason; why the pipe ends is not publicReason outside", async (t) => {
  const { near, far, ends } = await joined(t);
  const inbox = inboxOf(far);
  const reason = new Error("the certificate CN=secret is no longer among the agents");
  far.pipe.destroy(reason);
  assert.equal(await inbox.closed, reason);
  assert.equal(inbox.closedCount, 1);
  assert.doesNotMatch(ends.server.publicReason ?? "secret", /secret/);
  await assert.rejects(near.pipe.readMessage(), /the peer has ended the link/);
});

test("bytes that are changed on their way end the link", async (t) => {
  const { near, far, ends } = await joined(t);
  const inbox = inboxOf(far);
  const { server } = ends;
  const receive = server.receive.bind(server);
  server.receive = (chunk) => {
    const changed = Buffer.from(chunk);
    changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1;
    receive(changed);
  };
  near.pipe.write([Buffer.from("hello")], 5);
  assert.match((await inbox.closed)?.message ?? "", /^inner TLS: .*bad record mac/);
  assert.equal(inbox.bytes, 0);
});

test("frames end where the records of the inner TLS end", async (t) => {
  const { near } = await joined(t);
  assert.deepEqual(
    [near.pipe.wholeRecords(12, 65_536), near.pipe.wholeRecords(16_000, 20_000), near.pipe.wholeRecords(0, 100)],
    [65_524, 16_768, 100],
  );
});

test("what TLS has in hand counts, so that a session sends no more than the path takes", async (t) => {
  const { near } = await joined(t);
  inboxOf(near);
  assert.equal(near.pipe.room(), 1_000);
  near.pipe.write([Buffer.alloc(600)], 600);
  assert.equal(near.pipe.room(), 400);
  assert.equal(near.pipe.pendingBytes, 600);
  await until(() => near.pipe.pendingBytes === 0);
});

/** A carrier on which somebody in between says what the test wants. */
class TappedCarrier implements LinkCarrier {
  lastByteAt = 0;
  readonly pendingBytes = 0;
  wholeRecords = (_at: number, most: number): number => most;
  onControl: ((message: ControlMessage) => void) | undefined;
  acknowledgedOffset: (() => number | undefined) | undefined;
  start(): void {}
  write(): void {}
  end(): void {}
  close(): void {}
  abandon(): void {}
  sendControl(): void {}
  probe(): void {}

  say(...messages: ControlMessage[]): void {
    for (const message of messages) this.onControl?.(message);
  }
}

function untrusted(askedEveryMs: number) {
  const carrier = new TappedCarrier();
  const link = new UntrustedLink("box", carrier, { replayBytes: 1_000 }, askedEveryMs);
  const heard: ControlMessage[] = [];
  link.watch({ onControl: (message) => heard.push(message) });
  link.start(new Inbox());
  return { carrier, link, heard };
}

const ROTATE = { type: "rotate", reason: "says the box" } as const;

test("a middlebox can neither drain an agent nor welcome it anew", () => {
  const { carrier, heard, link } = untrusted(60_000);
  carrier.say({ type: "drain", retryAfterMs: 86_400_000 }, welcome());
  assert.deepEqual(heard, []);
  assert.equal(link.closed, false);
});

test("a flood of rotate messages is one request now and one later", async () => {
  const { carrier, heard } = untrusted(50);
  const last = { ...ROTATE, reason: "the last" };
  carrier.say(...Array<ControlMessage>(100).fill(ROTATE), last);
  assert.deepEqual(heard, [ROTATE]);
  await until(() => heard.length > 1);
  assert.deepEqual(heard, [ROTATE, last]);
});

test("a flood of numbers of servers is one number now and the last one later", async () => {
  const { carrier, heard } = untrusted(50);
  const count = (count: number) => ({ type: "servers", count }) as const;
  carrier.say(...Array.from({ length: 100 }, (_, index) => count(index + 1)));
  assert.deepEqual(heard, [count(1)]);
  await until(() => heard.length > 1);
  assert.deepEqual(heard, [count(1), count(100)]);
});

test("when the link is over no request is delivered any more", async () => {
  const { carrier, heard, link } = untrusted(20);
  carrier.say(ROTATE, ROTATE);
  link.destroy();
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(heard.length, 1);
});

test("the answer to a resume cannot change how often an end pings", () => {
  const resumed = { type: "resumed", version: 1, received: 7, proof: "p".repeat(43) };
  assert.deepEqual(parseControl(JSON.stringify({ ...resumed, keepaliveMs: 10 })), resumed);
});
