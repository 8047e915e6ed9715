import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { connect as connectTls, createServer, type TLSSocket } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { LinkRefused, SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { ServerOptions } from "../options/options.ts";
import { agentOf, CONNECT, collect, pki, type TestServer } from "../testing/server.ts";
import { PEER_PATH } from "./peer-link.ts";
import { answerTo, ask, Fleet, linesOf, peerLeaf, rawPeer } from "./testing/fleet.ts";

const REQUEST = { kind: "peer", hops: 1, cluster: "default", target: "10.0.0.1:10250", timeoutMs: 1_000, id: "x/1" };

function issuePeer(cn = "raw"): Promise<CertificateAndKey> {
  return pki.ca.issue(peerLeaf(cn));
}

function notReached(server: TestServer) {
  return linesOf(server, "peer not reached");
}

function refusals(server: TestServer): string[] {
  return linesOf(server, "peer refused").map((line) => String(line["reason"]));
}

test("who has an agent's or a caller's certificate, one of another CA, or none, is no server: refused, counted and logged", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1");
  const rows: [string, CertificateAndKey | undefined, number, RegExp][] = [
    ["an agent", pki.agent, 403, /CN=konnectivity-agent is not among --peer-identities/],
    ["a caller", pki.caller, 403, /CN=kube-apiserver,O=system:masters is not among --peer-identities/],
    ["nobody", undefined, 401, /no client certificate was sent/],
    ["a server of another CA", await pki.other.issue(peerLeaf("x")), 401, /CA/],
  ];
  for (const [who, by, status, reason] of rows) {
    const error: Error = await rawPeer(server, by).then(
      () => assert.fail(who),
      (why) => why,
    );
    assert.ok(error instanceof LinkRefused, `${who}: ${error}`);
    assert.equal(error.status, status, who);
    assert.match(refusals(server).at(-1) ?? "", reason);
    assert.equal(
      linesOf(server, "peer refused").at(-1)?.["code"],
      status,
      `${who}: the log has the status of the answer`,
    );
  }
  assert.match(await server.metrics.registry.metrics(), /^culvert_server_peers_refused_total 4$/m);
  await rawPeer(server, await issuePeer());
});

test("a forged answer that leads to whoever has no server's certificate sends nothing there, and the log says why", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1");
  let received = 0;
  const impostor = createServer(
    { ...pki.server, requestCert: true, rejectUnauthorized: false },
    (socket: TLSSocket) => {
      socket
        .on("error", () => {})
        .on("data", (chunk: Buffer) => {
          received += chunk.length;
        });
    },
  ).listen(0, "127.0.0.1");
  await once(impostor, "listening");
  const address = `127.0.0.1:${(impostor.address() as AddressInfo).port}`;
  fleet.hub.forged = () => ({ serverId: "srv-2", address });
  const { status } = await ask(near);
  assert.equal(
    status,
    `HTTP/1.1 502 server "srv-2" cannot be reached from server "srv-1": the log of "srv-1" says why`,
  );
  const [line] = notReached(near);
  assert.equal(line?.["remote"], address);
  assert.match(String(line?.["reason"]), /CN=server\S* is not among --peer-identities/);
  assert.equal(received, 0);
  impostor.close();
});

test("a replayed answer, whose address is another server's by now, is of no use, and the true one is asked for again", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1");
  const holder = await fleet.start("srv-2");
  const other = await fleet.start("srv-3");
  await agentOf(holder, { agentId: "blue" });
  await fleet.holders("srv-2");
  const replayed = { serverId: "srv-2", address: `127.0.0.1:${other.addresses.peers?.port}` };
  let forgeries = 1;
  fleet.hub.forged = () => (forgeries-- > 0 ? replayed : undefined);
  assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
  const reason = String(near.lines.find(({ msg }) => msg === "peer not reached")?.["reason"]);
  assert.match(reason, /server "srv-3" is at this address now/);
});

test("a forged answer that leads to a server without the cluster is dropped at once, and no third server is asked", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1", { agentWaitMs: 300 });
  const empty = await fleet.start("srv-2");
  const location = { serverId: "srv-2", address: `127.0.0.1:${empty.addresses.peers?.port}` };
  fleet.hub.forged = () => location;
  const { status } = await ask(near);
  assert.match(status, /^HTTP\/1\.1 503 no agent of cluster "default" is connected/);
  const asked = empty.lines.filter(({ msg }) => msg === "CONNECT of a peer failed");
  assert.deepEqual(
    asked.map((line) => line["outcome"]),
    ["no_agent", "no_agent"],
    "one retry, no more",
  );
  fleet.hub.forged = undefined;
  await agentOf(await fleet.start("srv-3"), { agentId: "blue" });
  await fleet.holders("srv-3");
  assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
});

test("a CONNECT that has passed one server is not taken, and the server that is asked asks no other", async () => {
  await using fleet = new Fleet();
  const middle = await fleet.start("srv-1");
  await agentOf(await fleet.start("srv-2"), { agentId: "blue" });
  await fleet.holders("srv-2");
  const { session } = await rawPeer(middle, await issuePeer());
  const { questions } = fleet.hub;
  const second = await answerTo(session, { ...REQUEST, hops: 2 });
  assert.deepEqual(second, { error: "forbidden", detail: "a CONNECT passes one other server at most, not 2" });
  const first = await answerTo(session, REQUEST);
  assert.equal(first["error"], "no_agent");
  assert.equal(fleet.hub.questions, questions);
  session.destroy();
});

test("with strict identifiers a target that agents claim is asked of nobody else at another server either", async () => {
  await using fleet = new Fleet();
  const strict: Partial<ServerOptions> = { proxyStrategies: ["destHost", "defaultRoute"], strictIdentifiers: true };
  const near = await fleet.start("srv-1", strict);
  const far = await fleet.start("srv-2", strict);
  const claims = { agentId: "a", identifiers: { ipv4: ["10.0.0.1"] } };
  const first = await agentOf(near, claims);
  await agentOf(far, { agentId: "b", identifiers: { defaultRoute: true } });
  await fleet.holders("srv-1", "srv-2");
  first.session.destroy();
  await fleet.holders("srv-2");
  const sentence = /^HTTP\/1\.1 503 10\.0\.0\.1 is for its own agents alone \(strict identifiers\)/;
  assert.match((await ask(near)).status, sentence);
  assert.ok(far.lines.some(({ msg, outcome }) => msg === "CONNECT of a peer failed" && outcome === "no_agent"));
  assert.match((await ask(near, CONNECT.replace("10.0.0.1", "10.0.0.2"))).status, /^HTTP\/1\.1 200 /);
  await agentOf(far, claims);
  await until(() => far.tunnels.clusters.get("default")?.tunnels().size === 2);
  assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
});

test("with strict identifiers servers that have agents of the cluster, but not of the claim, are passed over", async () => {
  await using fleet = new Fleet();
  const strict: Partial<ServerOptions> = { proxyStrategies: ["destHost", "defaultRoute"], strictIdentifiers: true };
  const claims = { identifiers: { ipv4: ["10.0.0.1"] } };
  const near = await fleet.start("srv-1", strict);
  const first = await agentOf(near, { agentId: "a", ...claims });
  for (const id of ["srv-2", "srv-3"]) {
    await agentOf(await fleet.start(id, strict), { agentId: id, identifiers: { defaultRoute: true } });
  }
  await agentOf(await fleet.start("srv-4", strict), { agentId: "blue", ...claims });
  await fleet.holders("srv-1", "srv-2", "srv-3", "srv-4");
  first.session.destroy();
  await fleet.holders("srv-2", "srv-3", "srv-4");
  assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
});

test("two servers that are each said to have the cluster send a CONNECT in no loop", async () => {
  await using fleet = new Fleet();
  const servers = [
    await fleet.start("srv-1", { agentWaitMs: 300 }),
    await fleet.start("srv-2", { agentWaitMs: 300 }),
  ] as const;
  const [first, second] = servers;
  let at = 0;
  fleet.hub.forged = () => {
    const [serverId, server] = at++ % 2 === 0 ? (["srv-2", second] as const) : (["srv-1", first] as const);
    return { serverId, address: `127.0.0.1:${server.addresses.peers?.port}` };
  };
  const [one, two] = await Promise.all([ask(first), ask(second)]);
  assert.match(one.status, /^HTTP\/1\.1 503 no agent/);
  assert.match(two.status, /^HTTP\/1\.1 503 no agent/);
  const carried = servers.flatMap(({ lines }) => lines).filter(({ msg }) => msg === "CONNECT of a peer failed");
  assert.ok(carried.length <= 4, `${carried.length} CONNECTs between the servers for two of callers`);
});

test("a server that is led to itself says so, and no link to itself is opened", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1", { agentWaitMs: 300 });
  fleet.hub.forged = () => ({ serverId: "srv-9", address: `127.0.0.1:${server.addresses.peers?.port}` });
  const { status } = await ask(server);
  assert.match(status, /^HTTP\/1\.1 502 server "srv-9" cannot be reached from server "srv-1": /);
  assert.match(String(notReached(server)[0]?.["reason"]), /this is server "srv-1" itself/);
  assert.match(refusals(server)[0] ?? "", /this is server "srv-1" itself/);
});

test("a peer's stream without a whole head, of no kind or with nonsense is refused, and the link goes on", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1");
  await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  const { session } = await rawPeer(server, await issuePeer());
  const rows: [object, string][] = [
    [{}, "internal"],
    [{ ...REQUEST, kind: "probe" }, "forbidden"],
    [{ ...REQUEST, kind: "destination" }, "forbidden"],
    [{ ...REQUEST, cluster: "x".repeat(64) }, "internal"],
    [{ ...REQUEST, cluster: "red" }, "unknown_cluster"],
    [{ ...REQUEST, target: "nowhere" }, "bad_target"],
    [{ ...REQUEST, timeoutMs: -1 }, "internal"],
  ];
  for (const [head, code] of rows) assert.equal((await answerTo(session, head))["error"], code, JSON.stringify(head));
  const unknown = await answerTo(session, { ...REQUEST, cluster: "red" });
  assert.equal(unknown["detail"], 'server "srv-1" has no cluster "red": compare the documents of both servers');
  for (let more = 0; more < 20; more++) await answerTo(session, { ...REQUEST, cluster: `red-${more}` });
  const lines = server.lines.filter(({ msg, level }) => msg === "CONNECT of a peer failed" && level !== "debug");
  assert.equal(lines.length, 10, "a peer that asks for nonsense does not fill the log");
  const broken = session.open(Buffer.from([0xff, 0xff]));
  broken.on("error", () => {});
  await until(() => broken.destroyed);
  assert.deepEqual(await answerTo(session, REQUEST), { ok: true, agent: "a" });
  session.destroy();
});

test("peers that have upgraded and say nothing are bounded: one more drops the oldest, and others come in", async () => {
  await using fleet = new Fleet();
  const server = await fleet.start("srv-1", { maxWaitingConnections: 2, helloTimeoutMs: 600_000 });
  const by = await issuePeer();
  const silent = async () => {
    const port = server.addresses.peers?.port ?? 0;
    const socket = connectTls({ ...by, port, host: "127.0.0.1", rejectUnauthorized: false }).on("error", () => {});
    const received = collect(socket);
    const key = Buffer.alloc(16).toString("base64");
    socket.write(
      `GET ${PEER_PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\nSec-WebSocket-Protocol: ${SUBPROTOCOL}\r\n\r\n`,
    );
    await until(() => received.join("").startsWith("HTTP/1.1 101 "));
    return socket;
  };
  const [oldest, second] = [await silent(), await silent()];
  const third = await silent();
  await until(() => oldest.destroyed);
  assert.deepEqual([second.destroyed, third.destroyed], [false, false]);
  await rawPeer(server, by);
  for (const socket of [second, third]) socket.destroy();
});
