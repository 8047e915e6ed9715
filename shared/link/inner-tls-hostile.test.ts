import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import tls from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { keyUpdates, secretOfClient } from "../listen/testing/key-updates.ts";
import { Authority, type CertificateAndKey } from "../pki/certificates.ts";
import { verifyPeer } from "../tls/identity.ts";
import { LinkDuplex, PUBLIC_REASON, UNACCEPTED } from "./inner-pipe.ts";
import { InnerServers, PeerFault } from "./inner-tls.ts";
import { PeerViolation } from "./link-events.ts";
import { Inbox } from "./testing/ends.ts";
import { dial, type End, link, pki, SOURCE, TIMEOUT_MS } from "./testing/inner-ends.ts";

const INNER_PROTOCOL = "culvert-inner/1";

/** A client that differs from an agent by `change`. */
function client(end: End, change: tls.ConnectionOptions): tls.TLSSocket {
  const socket = tls.connect({
    socket: new LinkDuplex(end, 1 << 20),
    servername: "server.example",
    ALPNProtocols: [INNER_PROTOCOL],
    ...change,
  });
  return socket.on("error", () => {});
}

test("a peer that resumes the TLS session of an agent without a certificate is not authenticated as that agent", async (t) => {
  const { authority, agent, material } = await pki();
  const servers = new InnerServers();
  let session: Buffer | undefined;
  const meet = async (shown: tls.ConnectionOptions) => {
    const ends = link();
    t.after(() => ends.agent.destroy());
    const accepted = servers.accept(ends.server, material, TIMEOUT_MS, SOURCE);
    const near = client(ends.agent, { ...shown, ca: authority.cert });
    near.on("session", (given) => {
      session = given;
    });
    const far = await accepted;
    far.pipe.sendMessage({ type: "renewed" });
    await once(near, "data"); // a session would have come before
    return verifyPeer(far.socket, undefined);
  };
  assert.equal((await meet(agent)).identity?.cn, "agent");
  assert.match((await meet(session === undefined ? {} : { session })).refusal ?? "", /no client certificate was sent/);
});

/** A server that is not one of ours. */
function serverOf({ cert, key }: tls.TlsOptions, end: End, change: tls.TlsOptions): void {
  const server = tls.createServer({ cert, key, ALPNProtocols: [INNER_PROTOCOL], ...change });
  server.on("secureConnection", (socket) => socket.on("error", () => {}));
  server.emit("connection", new LinkDuplex(end, 1 << 20));
}

/**
 * An agent of ours and a server of ours, each with a peer that does otherwise: neither takes it, and the link is over.
 */
async function assertRefused(change: tls.ConnectionOptions & tls.TlsOptions, reason: RegExp): Promise<void> {
  const { authority, agent, material } = await pki();
  const ours = link();
  const accepted = new InnerServers().accept(ours.server, material, TIMEOUT_MS, SOURCE);
  client(ours.agent, { ...agent, ca: authority.cert, ...change });
  await assert.rejects(accepted, reason, "the server");
  assert.equal(ours.server.publicReason, PUBLIC_REASON);
  const theirs = link();
  serverOf(material, theirs.server, change);
  await assert.rejects(dial(theirs.agent, { ...agent, ca: authority.cert }), reason, "the agent");
  assert.equal(theirs.agent.publicReason, PUBLIC_REASON);
}

test("a peer that speaks no later TLS than 1.2 inside is refused, at each side", async () => {
  await assertRefused({ maxVersion: "TLSv1.2" }, /inner TLS: .*protocol/);
});

test("a peer that names another protocol inside, or none, is refused, at each side", async () => {
  await assertRefused({ ALPNProtocols: ["http/1.1"] }, /inner TLS: .*no application protocol/);
  await assertRefused({ ALPNProtocols: undefined }, /inner TLS: the peer does not speak its protocol/);
});

test("a peer that knows only a key exchange which costs the server much more than the usual ones is refused", async () => {
  const { authority, agent, material } = await pki();
  for (const ecdhCurve of ["P-521", "X448", "ffdhe2048", "ffdhe8192"]) {
    const ends = link();
    const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
    client(ends.agent, { ...agent, ca: authority.cert, ecdhCurve });
    await assert.rejects(accepted, /inner TLS: .*(?:group|key share)/, ecdhCurve);
  }
});

test("a handshake that fails, and whose end TLS learns of later, is not the next agent's", async (t) => {
  const { authority, material } = await pki();
  const shown = async (cn: string) => ({ ...(await authority.issue({ cn, usage: "client" })), ca: authority.cert });
  const [first, next] = [await shown("first"), await shown("next")];
  for (const leave of [
    (end: End) => end.end(), // before a word
    (end: End) => {
      end.receive = () => end.end(); // at the server's
      dial(end, first).catch(() => {});
    },
  ]) {
    const servers = new InnerServers();
    const gone = link();
    const failed = servers.accept(gone.server, material, TIMEOUT_MS, SOURCE);
    leave(gone.agent);
    await assert.rejects(failed, /the peer closed inside the inner TLS handshake/);
    const ends = link();
    t.after(() => ends.agent.destroy());
    // In the turn of the failure: the one before may have more to say.
    const [far] = await Promise.all([
      servers.accept(ends.server, material, TIMEOUT_MS, SOURCE),
      dial(ends.agent, next),
    ]);
    assert.equal(verifyPeer(far.socket, undefined).identity?.cn, "next");
  }
});

test("a ClientHello that has come before the server's side begins is answered", async (t) => {
  const { authority, agent, material } = await pki();
  const ends = link();
  t.after(() => ends.agent.destroy());
  const received = new Promise<void>((resolve) => {
    const receive = ends.server.receive.bind(ends.server);
    ends.server.receive = (chunk) => {
      receive(chunk);
      resolve();
    };
  });
  client(ends.agent, { ...agent, ca: authority.cert });
  await received;
  const { socket } = await new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
  assert.equal(verifyPeer(socket, undefined).identity?.cn, "agent");
});

test("peers in their handshake at the same time cost one context of TLS, and each is told by its own certificate", async (t) => {
  const { authority, material } = await pki();
  const createServer = t.mock.method(tls, "createServer");
  const servers = new InnerServers();
  const names = Array.from({ length: 20 }, (_, index) => `agent-${index}`);
  const begun = names.map(() => {
    const ends = link();
    t.after(() => ends.agent.destroy());
    return { ends, accepted: servers.accept(ends.server, material, TIMEOUT_MS, SOURCE) };
  });
  const identities = begun.map(async ({ accepted }) => verifyPeer((await accepted).socket, undefined).identity?.cn);
  await Promise.all(
    begun.toReversed().map(async ({ ends }, index) => {
      const shown = await authority.issue({ cn: names.toReversed()[index] ?? "", usage: "client" });
      await dial(ends.agent, { ...shown, ca: authority.cert });
    }),
  );
  assert.deepEqual(await Promise.all(identities), names);
  assert.equal(createServer.mock.callCount(), 1);
});

/** A certificate of an unknown CA, and `bytes` of further certificates in place of a chain. */
async function strangersChain(bytes: number) {
  const { cert: another } = await Authority.create("another");
  const stranger = await (await Authority.create("stranger")).issue({ cn: "agent", usage: "client" });
  const pieces = Math.ceil(bytes / Buffer.from(another, "base64").length);
  return { cert: stranger.cert + another.repeat(pieces), key: stranger.key };
}

test("a network whose certificates are not accepted inside has to wait, and no other one does", async (t) => {
  const { authority, agent, material } = await pki();
  const stranger = await strangersChain(11 * 1024);
  const now = performance.now();
  t.mock.method(performance, "now", () => now); // the network regains no bytes meanwhile
  const servers = new InnerServers();
  const come = async (shown: CertificateAndKey, network: string) => {
    const ends = link();
    t.after(() => ends.agent.destroy());
    const accepted = servers.accept(ends.server, material, TIMEOUT_MS, { ...SOURCE, network });
    client(ends.agent, { ...shown, ca: authority.cert });
    return verifyPeer((await accepted).socket, undefined).identity?.cn;
  };
  for (let chains = 1; chains <= 3; chains++) assert.equal(await come(stranger, "flooding"), undefined);
  const waits = (error: unknown) => error instanceof PeerFault && error.message === UNACCEPTED;
  await assert.rejects(come(stranger, "flooding"), waits, "counted while it comes");
  await assert.rejects(come(agent, "flooding"), waits);
  assert.equal(await come(agent, "another"), "agent");
});

test("an agent that sends a flood of KeyUpdates inside loses its link, for a violation", async (t) => {
  const { authority, agent, material } = await pki();
  const ends = link();
  const accepted = new InnerServers().accept(ends.server, material, TIMEOUT_MS, SOURCE);
  const near = client(ends.agent, { ...agent, ca: authority.cert });
  const secret = secretOfClient(near);
  const { pipe } = await accepted;
  const inbox = new Inbox();
  pipe.start(inbox);
  const running = setInterval(() => {}, 1_000); // the timer of TlsOverhead keeps no process alive
  t.after(() => clearInterval(running));
  ends.agent.write([keyUpdates(await secret, 3_000)]);
  await until(() => inbox.closedCount > 0);
  const reason = await inbox.closed;
  assert.ok(reason instanceof PeerViolation);
  assert.match(reason.message, /flood of TLS messages without payload/);
  assert.equal(ends.server.publicReason, reason.message, "and it is told why");
});
