import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { dialOuter } from "../../shared/link/dial.ts";
import { encodeInner, type InnerHello, parseInnerReply } from "../../shared/link/inner-pipe.ts";
import { dialInner, UntrustedLink } from "../../shared/link/inner-tls.ts";
import { UnauthenticatedSockets } from "../../shared/listen/unauthenticated-sockets.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import type { Server } from "../server.ts";
import { pki, start } from "../testing/server.ts";
import { Tenants } from "../testing/tenants.ts";
import { HandshakeDeadline, UnauthenticatedCarriers } from "./attach-inside.ts";

const HELLO: InnerHello = { type: "hello", version: 1, agentId: "a", instance: "1", software: "test" };

interface Names {
  readonly outside: string;
  readonly inside: string;
  readonly ca: string;
  readonly by: Partial<CertificateAndKey>;
}

/** Inner TLS with this server, of which nothing is known outside; certificate and key are shown inside. */
async function insideOf(server: Server, names?: Names, through = server.addresses.agents?.port ?? 0) {
  const { outside, inside, ca, by } = names ?? {
    ...{ outside: "localhost", inside: "localhost", ca: pki.ca.cert, by: pki.agent },
  };
  const port = server.addresses.agents?.port ?? 0;
  const { carrier, remote } = await dialOuter({
    ...{ host: outside, port, address: { host: "127.0.0.1", port: through }, path: "/culvert/v1/tunnel" },
    ...{ tls: { ca }, keepaliveMs: 20_000, timeoutMs: 5_000 },
  });
  const link = new UntrustedLink(remote, carrier, { replayBytes: 1024 * 1024 });
  // As if one certificate were good for all clusters.
  const tls = { ca, ...by, checkServerIdentity: () => undefined };
  const { signal } = new AbortController();
  return dialInner(link, { host: inside, tls, timeoutMs: 5_000, signal });
}

/** A path to the agents' port on which, when told, nothing gets back to the agent any more. */
async function deafPath(server: Server) {
  const sockets: Socket[] = [];
  let isCut = false;
  const relay = createServer((near) => {
    const far = connect({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1" });
    for (const socket of [near, far]) sockets.push(socket.on("error", () => {}));
    far.once("close", () => {
      isCut = true;
    });
    near.pipe(far).pipe(near);
  });
  relay.listen(0, "127.0.0.1");
  await once(relay, "listening");
  return {
    port: (relay.address() as AddressInfo).port,
    isCut: () => isCut,
    deafen: () => {
      for (const socket of sockets) if (socket.remotePort === server.addresses.agents?.port) socket.unpipe().resume();
    },
    [Symbol.dispose]: () => {
      relay.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

const refused = (server: { lines: readonly { msg: string }[] }) =>
  server.lines.filter(({ msg }) => msg === "agent refused").map((line) => String(Reflect.get(line, "reason")));

test("who says nothing inside is not waited for, nor who says too much", async () => {
  await using server = await start({ innerTls: "auto", handshakeTimeoutMs: 1_000 });
  const silent = await insideOf(server);
  const unanswered = assert.rejects(silent.pipe.readMessage());
  await until(() => refused(server).length === 1);
  await unanswered;
  const loud = await insideOf(server);
  loud.socket.write(Buffer.concat([Buffer.from([0xff, 0xff]), Buffer.alloc(40 * 1024)]));
  await assert.rejects(loud.pipe.readMessage());
  await until(() => refused(server).length === 2);
  assert.match(refused(server).join(), /no hello came inside the inner TLS,too many bytes came/);
});

test("what is wrong with the words inside is said inside", async () => {
  await using server = await start({ innerTls: "auto" });
  const wrong: [Buffer, RegExp][] = [
    [encodeInner({ ...HELLO, agentId: "" }), /4400.*bad inner hello: agentId/],
    [encodeInner({ ...HELLO, cluster: "green" }), /belongs to cluster "default", not to "green"/],
    [encodeInner({ ...HELLO, renews: "srv-1/none" }), /4404.*has no such link any more/],
    [encodeInner({ ...HELLO, renews: "other/1" }), /4421.*another server's/],
  ];
  for (const [words, reason] of wrong) {
    const { socket, pipe } = await insideOf(server);
    socket.write(words);
    const answer = await pipe.readMessage();
    assert.throws(() => parseInnerReply(answer), reason);
  }
});

test("who is refused inside and never answers our close is cut when its time is over", async () => {
  await using server = await start({ innerTls: "auto", handshakeTimeoutMs: 2_000 });
  using path = await deafPath(server);
  const { socket } = await insideOf(server, undefined, path.port);
  path.deafen();
  socket.write(encodeInner({ ...HELLO, agentId: "" }));
  await until(() => refused(server).length === 1);
  await until(() => path.isCut());
});

test("a peer that measures may come by inner TLS as well", async () => {
  await using server = await start({ innerTls: "auto" });
  const { pipe } = await insideOf(server);
  pipe.sendMessage({ ...HELLO, probe: true });
  const answer = parseInnerReply(await pipe.readMessage());
  assert.equal(answer.type === "welcome" && answer.graceMs, 0);
  const cluster = server.tunnels.clusters.get("default") ?? assert.fail();
  await until(() => cluster.tunnels().size === 1);
  assert.equal(cluster.pick(), undefined);
  pipe.destroy();
});

test("a middlebox that leads the agent of one cluster to another one's listener gets no tunnel there", async () => {
  await using tenants = await Tenants.create([], ["blue", "green"]);
  const green = tenants.get("green");
  await green.write({ agents: { innerTls: "auto" } });
  const server = await tenants.start();
  const names = { outside: green.sni, ca: green.authority.cert, by: green.agent };
  const astray = await insideOf(server, { ...names, inside: tenants.get("blue").sni });
  astray.pipe.sendMessage(HELLO);
  const answer = await astray.pipe.readMessage();
  assert.throws(() => parseInnerReply(answer), /4403.*cluster "green".*"blue.example" was asked for/);
  const right = await insideOf(server, { ...names, inside: "GREEN.example." });
  right.pipe.sendMessage(HELLO);
  assert.equal(parseInnerReply(await right.pipe.readMessage()).type, "welcome");
  right.pipe.destroy();
});

test("who shows nothing inside hides no refusal of one who brings a certificate there", async () => {
  await using server = await start({ innerTls: "auto" });
  const inside = async (by: Names["by"]) => {
    const { pipe } = await insideOf(server, { outside: "localhost", inside: "localhost", ca: pki.ca.cert, by });
    pipe.sendMessage(HELLO);
    const answer = await pipe.readMessage();
    assert.throws(() => parseInnerReply(answer), /401/);
    pipe.destroy();
  };
  await Promise.all(Array.from({ length: 11 }, () => inside({})));
  await until(() => refused(server).length === 11);
  await inside(await pki.other.issue({ cn: "konnectivity-agent", usage: "client" }));
  await until(() => refused(server).length === 12);
  assert.deepEqual(
    server.lines.filter(({ msg }) => msg === "agent refused").map((line) => [line.level, line["code"]]),
    [...Array.from({ length: 10 }, () => "warn"), "debug", "warn"].map((level) => [level, 401]),
  );
});

test("a carrier that is not authenticated in time is destroyed, and gives up its place when it has closed", async () => {
  const [socket] = duplexPair();
  const events: string[] = [];
  socket.once("close", () => events.push("closed"));
  const deadline = new HandshakeDeadline(socket, 10);
  deadline.moveTo(() => events.push("over"));
  await until(() => events.includes("over"));
  assert.deepEqual(events, ["closed", "over"]);
  assert.equal(deadline.dropped?.message, "no hello arrived in time", "nobody may say that its peer has cut it");
});

test("an authenticated carrier is not destroyed, and gives up its place once", async () => {
  const [socket] = duplexPair();
  let count = 0;
  const deadline = new HandshakeDeadline(socket, 1);
  deadline.moveTo(() => count++);
  deadline.end();
  const [other] = duplexPair();
  new HandshakeDeadline(other, 1);
  await until(() => other.destroyed); // which had as much time
  assert.equal(socket.destroyed, false);
  socket.destroy();
  await once(socket, "close");
  assert.equal(count, 1);
});

test("the deadline is paused while a token is verified", async () => {
  const [socket] = duplexPair();
  const deadline = new HandshakeDeadline(socket, 10);
  const [other] = duplexPair();
  await deadline.pausedDuring(async () => {
    new HandshakeDeadline(other, 10);
    await until(() => other.destroyed);
  });
  assert.equal(socket.destroyed, false);
  await until(() => socket.destroyed);
});

test("a destroyed carrier that closes later gives up its place at the deadline", async () => {
  const [socket] = duplexPair();
  socket._destroy = () => {}; // it keeps its place (shared/listen/paced-close.ts)
  let isOver = false;
  new HandshakeDeadline(socket, 10).moveTo(() => {
    isOver = true;
  });
  socket.destroy();
  await until(() => isOver);
  assert.equal(socket.closed, false);
});

test("a carrier that has closed before takes no place", async () => {
  const [socket] = duplexPair();
  socket.destroy();
  await once(socket, "close");
  let count = 0;
  new HandshakeDeadline(socket, 60_000).moveTo(() => count++);
  assert.equal(count, 1);
});

// ── places ─────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Carrier {
  readonly deadline: HandshakeDeadline;
  /** The reasons with which it was dropped. */
  readonly reasons: string[];
}

function enter(carriers: UnauthenticatedCarriers, address: string, cluster = "blue"): Carrier {
  const deadline = new HandshakeDeadline(duplexPair()[0], 60_000);
  const reasons: string[] = [];
  carriers.enter(cluster, address, deadline, (reason) => reasons.push(reason));
  return { deadline, reasons };
}

/** Which of them were dropped, by their place. */
function dropped(carriers: readonly Carrier[]): number[] {
  return carriers.flatMap(({ reasons }, index) => (reasons.length === 0 ? [] : [index]));
}

function end(carriers: readonly Carrier[]): void {
  for (const { deadline } of carriers) deadline.end();
}

test("one too many drops the oldest of the address that has most, and a newcomer always gets in", () => {
  const carriers = new UnauthenticatedCarriers(4);
  const flood = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  const honest = [2, 3].map((host) => enter(carriers, `10.0.0.${host}`));
  assert.deepEqual(dropped(flood), [0]);
  const more = [1, 2, 3].map(() => enter(carriers, "10.0.0.1"));
  assert.deepEqual([dropped(flood), dropped(more), dropped(honest)], [[0, 1, 2], [0], []]);
  assert.match(flood[0]?.reasons[0] ?? "", /cluster "blue" .*--max-inner-handshakes.*the oldest was dropped/);
  assert.match(flood[0]?.deadline.dropped?.message ?? "", /\(4429\): too many agents /);
  assert.equal(carriers.sizeOf("blue"), 4);
  end([...flood, ...honest, ...more]);
  assert.equal(carriers.sizeOf("blue"), 0);
});

test("all unauthenticated connections of the process have a bound together, whatever clusters they have come to", () => {
  const all = new UnauthenticatedSockets(6); // half of it
  const carriers = new UnauthenticatedCarriers(4, all);
  const connection = { network: "10.0.0.2", onCrowdedOut: () => assert.fail("its network has one") };
  all.add(connection);
  const flood = ["blue", "green", "red", "white"].map((cluster) => enter(carriers, "10.0.0.1", cluster));
  assert.deepEqual([dropped(flood), all.size, carriers.sizeOf("blue")], [[0, 1], 3, 0]);
  assert.match(flood[0]?.deadline.dropped?.message ?? "", /half of the files/);
  carriers.enter("red", "10.0.0.1", (flood[2] as Carrier).deadline, () => {}); // the next stage of one of them
  assert.deepEqual([dropped(flood), all.size], [[0, 1], 3]);
  end(flood);
  assert.equal(all.size, 1);
});

test("each cluster has its own bound", () => {
  const carriers = new UnauthenticatedCarriers(2);
  const blue = [enter(carriers, "10.0.0.1"), enter(carriers, "10.0.0.1")];
  const green = [1, 2, 3].map(() => enter(carriers, "10.0.0.1", "green"));
  assert.deepEqual([dropped(blue), dropped(green)], [[], [0]]);
  end([...blue, ...green]);
});

test("a carrier gives up its place once, when it goes on to the next stage or ends", async () => {
  const [hellos, handshakes] = [new UnauthenticatedCarriers(4), new UnauthenticatedCarriers(4)];
  const { deadline } = enter(hellos, "10.0.0.1");
  handshakes.enter("blue", "10.0.0.1", deadline, assert.fail);
  assert.deepEqual([hellos.sizeOf("blue"), handshakes.sizeOf("blue")], [0, 1]);
  deadline.end();
  deadline.end();
  assert.equal(handshakes.sizeOf("blue"), 0);
  handshakes.enter("blue", "10.0.0.1", deadline, assert.fail);
  assert.equal(handshakes.sizeOf("blue"), 0, "its deadline had ended before");
});

test("the addresses of one IPv6 network are one source", () => {
  const carriers = new UnauthenticatedCarriers(3);
  const flood = [enter(carriers, "2001:db8::1"), enter(carriers, "2001:db8:0:0:ffff::2")];
  const others = [enter(carriers, "2001:db8:0:1::1"), enter(carriers, "2001:db8:0:2::1")];
  assert.deepEqual([dropped(flood), dropped(others)], [[0], []]);
  end([...flood, ...others]);
});
