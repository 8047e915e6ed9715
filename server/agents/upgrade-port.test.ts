import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { type ConnectionOptions, createServer, connect as dialTls, type TLSSocket } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import { TurnQueue } from "../../shared/basics/timers.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { InnerServers } from "../../shared/link/inner-tls.ts";
import { textFrame } from "../../shared/link/testing/frames.ts";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { UNAUTHENTICATED, type Unauthenticated } from "../../shared/listen/unauthenticated-sockets.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { WaitingConnections } from "../listeners/port-connections.ts";
import { ServerMetrics } from "../metrics/server-metrics.ts";
import { serverOptions } from "../options/options.ts";
import { collect, type Line, pki } from "../testing/server.ts";
import type { VerificationResult } from "../tokens/verifier.ts";
import { hellosAllowed } from "../tunnels/agent-limits.ts";
import { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import { Links } from "../tunnels/links.ts";
import { UnauthenticatedCarriers } from "./admission.ts";
import type { AgentHost } from "./authenticate-agent.ts";
import type { AgentsContext } from "./context.ts";
import { UpgradePort } from "./upgrade-port.ts";

const MAX_AGENTS = 10;

/** A port of agents on loopback, each connection coming through the host that `hostOf` its server name has. */
async function portOf(hostOf: (serverName: string) => AgentHost, more: Partial<AgentsContext["options"]> = {}) {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "debug", format: "json", name: "server", destination });
  let dropped = 0;
  const port = await UpgradePort.create({ listener: "agents" }, {
    options: { ...defaultsOf(serverOptions), serverId: "srv", ...more },
    metrics: Object.assign(new ServerMetrics({ processMetrics: false }), { waitingDropped: () => dropped++ }),
    log,
    throttledLog: new ThrottledLog(log),
    turns: new TurnQueue(),
    waiting: new WaitingConnections(more.maxWaitingConnections ?? 100),
    ...{ beforeHello: new UnauthenticatedCarriers(8), innerHandshakes: new UnauthenticatedCarriers(8) },
    links: new Links("srv"),
    innerServers: new InnerServers(),
    draining: () => false,
    audit: () => undefined,
  } as Partial<AgentsContext> as AgentsContext); // nobody here gets as far as a session
  const tls = createServer({ ...pki.server, ca: pki.ca.cert, requestCert: true, rejectUnauthorized: false });
  const accepted: TLSSocket[] = [];
  tls.on("secureConnection", (socket) => {
    accepted.push(socket);
    const connection = new IncomingConnection<AgentHost>(socket);
    connection.handedOn(socket);
    UNAUTHENTICATED.add(connection);
    connection.host = hostOf(String(socket.servername));
    port.take(connection);
  });
  await once(tls.listen(0, "127.0.0.1"), "listening");
  const dial = (by: ConnectionOptions) => {
    const where = { port: (tls.address() as AddressInfo).port, host: "127.0.0.1" };
    const socket = dialTls({ ...where, ca: pki.ca.cert, checkServerIdentity: () => undefined, ...by });
    socket.on("error", () => {});
    return { socket, reads: collect(socket) };
  };
  return {
    port,
    lines,
    accepted,
    dropped: () => dropped,
    /** Everything that comes for what is sent, when the server has closed. */
    send: async (by: ConnectionOptions, bytes: string) => {
      const { socket, reads } = dial(by);
      socket.write(bytes);
      await until(() => socket.destroyed || socket.readableEnded);
      return reads.join("");
    },
    /** Asks for a tunnel; `over` resolves with everything that came, when the server has closed. */
    ask: (by: ConnectionOptions, headers = "", what = `GET ${TUNNEL_PATH}`) => {
      const { socket, reads } = dial(by);
      socket.write(
        `${what} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n` +
          `Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}\r\nSec-WebSocket-Protocol: ${SUBPROTOCOL}\r\n${headers}\r\n`,
      );
      return { socket, over: until(() => socket.destroyed || socket.readableEnded).then(() => reads.join("")) };
    },
    [Symbol.asyncDispose]: async () => {
      tls.close();
      port.connections.resetAll();
    },
  };
}

function hostOf(name: string, more: Partial<AgentHost> = {}): AgentHost {
  const tunnels = new ClusterTunnels(name, { serverId: "srv", maxAgents: MAX_AGENTS, drainTimeoutMs: 0 });
  return {
    tunnels,
    identities: [],
    rule: "a list",
    ca: undefined,
    verifier: undefined,
    takesKonnectivity: false,
    innerTls: "never",
    side: { sni: [] },
    trust: new ClientTrust(pki.ca.cert),
    tls: { ...pki.server, ca: pki.ca.cert, notAfter: new Date() },
    objection: () => undefined,
    ...more,
  };
}

test("an agent that is turned away reads 503 and when to come back; an unauthenticated peer only that it is one", async () => {
  const host = hostOf("default");
  for (let joined = 0; joined < hellosAllowed(MAX_AGENTS); joined++) host.tunnels.hellos.join(new PassThrough());
  await using it = await portOf(() => host);
  const turnedAway = await it.ask(pki.agent).over;
  assert.match(turnedAway, /^HTTP\/1\.1 503 /);
  assert.match(turnedAway, /\r\nretry-after: 1\r\n/i);
  assert.match(
    turnedAway,
    /\r\nproxy-status: culvert; error=connection_limit_reached; details="[^"]+: come back in 1 s"\r\n/i,
  );
  assert.match(turnedAway, /come back in 1 s\n$/);
  const unauthenticated = await it.ask({}).over;
  assert.match(unauthenticated, /^HTTP\/1\.1 401 /);
  assert.doesNotMatch(unauthenticated, /retry-after/i);
});

test("each 401 says by what one may prove oneself, and no other answer does", async () => {
  const refuse = async (): Promise<VerificationResult> => ({ refused: "the token is none" });
  const hosts: Record<string, AgentHost> = {
    tokens: hostOf("tokens", { verifier: { verify: refuse, close: () => {} } }),
    certificates: hostOf("certificates"),
    crowded: hostOf("crowded", { objection: () => new CulvertError("forbidden", "not from there") }),
  };
  await using it = await portOf((name) => hosts[name] ?? assert.fail(name));
  const asked = async (servername: string, by: ConnectionOptions = {}, headers = "") => {
    const [head = ""] = (await it.ask({ servername, ...by }, headers).over).split("\r\n\r\n");
    return [head.split(" ")[1], /^www-authenticate: (.*)$/im.exec(head)?.[1]];
  };
  assert.deepEqual(await asked("tokens"), ["401", 'Bearer realm="culvert"']);
  const invalid = ["401", 'Bearer realm="culvert", error="invalid_token"'];
  assert.deepEqual(await asked("tokens", {}, "Authorization: Bearer a.b.c\r\n"), invalid);
  assert.deepEqual(await asked("certificates"), ["401", "ClientCertificate"]);
  assert.deepEqual(await asked("crowded", pki.agent), ["403", undefined]);

  const misled = it.ask({ servername: "tokens" }, "", "CONNECT 10.0.0.1:1");
  assert.match(await misled.over, /^HTTP\/1\.1 401 .*\r\nwww-authenticate: Bearer realm="culvert"\r\n/is);
});

test("who is refused, or meets a fault of our own, has one line in the log, and none about how its connection ended", async () => {
  const hosts: Record<string, AgentHost> = {
    open: hostOf("open"),
    closed: hostOf("closed", { objection: () => new CulvertError("forbidden", "not from there") }),
    broken: hostOf("broken", { objection: () => assert.fail("a fault") }),
  };
  await using it = await portOf((name) => hosts[name] ?? assert.fail(name));
  for (const [servername, what, status, level] of [
    ["closed", undefined, 403, "warn"],
    ["broken", undefined, 500, "error"],
    ["open", "GET /elsewhere", 404, "info"],
  ] as const) {
    const { socket, over } = it.ask({ ...pki.agent, servername }, "", what);
    assert.match(await over, new RegExp(`^HTTP/1.1 ${status} `));
    socket.end();
    await until(() => it.port.connections.size === 0);
    const lines = it.lines.splice(0).map((line) => [line.level, line.msg, line["code"]]);
    assert.deepEqual(lines, [[level, "agent refused", status]]);
  }
});

/** Requests of which a router could make something by itself. */
const ODD: readonly (readonly [what: string, headers: string, status: number])[] = [
  ["GET /%zz", "", 404],
  [`GET ${TUNNEL_PATH}%zz`, "", 404],
  [`GET ${TUNNEL_PATH.replace("tunnel", "%74unnel")}`, "", 404],
  [`GET ${TUNNEL_PATH}#a`, "", 404],
  [`GET ${TUNNEL_PATH}/`, "", 404],
  [`GET ${TUNNEL_PATH.toUpperCase()}`, "", 404],
  [`GET https://x${TUNNEL_PATH}`, "", 404],
  ["GET *", "", 404],
  [`GET ${TUNNEL_PATH}?%zz`, "Sec-WebSocket-Protocol: other\r\n", 426],
  [`HEAD ${TUNNEL_PATH}`, "", 426],
  [`POST ${TUNNEL_PATH}`, "Content-Type: no type\r\n", 426],
  [`PROPFIND ${TUNNEL_PATH}`, "Accept-Version: 1\r\n", 426],
];

test("no path, method or body is refused before the peer is authenticated, and all as requests of no agent", async () => {
  const host = hostOf("default");
  await using it = await portOf(() => host);
  for (const [what, headers, status] of ODD) {
    const ask = async (by: ConnectionOptions) => {
      const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
      return await it.send(by, `${what} HTTP/1.1\r\nHost: x\r\n${upgrade}${headers}\r\n`);
    };
    assert.match(await ask({}), /^HTTP\/1\.1 401 /, what);
    assert.match(await ask(pki.agent), new RegExp(`^HTTP/1\\.1 ${status} .*proxy-status: culvert; `, "s"), what);
  }
  assert.match(
    await it.send({}, `POST / HTTP/1.1\r\nHost: x\r\nContent-Type: a b\r\nContent-Length: 4\r\n\r\n1234`),
    /^HTTP\/1\.1 401 /,
  );
});

const INNER_HELLO = textFrame({ type: "hello", version: 1, inner: true }, Buffer.alloc(4));

test("a fault of our own in an inner handshake is an error in the log, and no unauthenticated peer's, and ends the connection", async () => {
  const tls = { ...pki.server, key: "no key", ca: pki.ca.cert, notAfter: new Date() };
  const host = hostOf("default", { innerTls: "auto", tls });
  await using it = await portOf(() => host);
  const { socket, over } = it.ask({});
  socket.write(INNER_HELLO);
  await over;
  const [line] = it.lines;
  assert.equal(line?.level, "error");
  assert.match(String(Reflect.get(Object(line["err"]), "stack")), /InnerServers/);
});

test("of whom nobody knows who it is has one deadline: a late hello, or none, gets no more", async () => {
  const host = hostOf("default", { innerTls: "auto" });
  const handshakeTimeoutMs = 2_000;
  await using it = await portOf(() => host, { handshakeTimeoutMs, helloTimeoutMs: 60_000 });
  const silent = it.ask({});
  const late = it.ask({});
  await pause(handshakeTimeoutMs / 2);
  const next = it.ask({});
  late.socket.write(INNER_HELLO);
  await Promise.all([late.over, silent.over, next.over]);
  const reasons = it.lines.map((line) => String(line["reason"]));
  const [noHello, tooLong] = ["no hello arrived in time", "the inner TLS handshake took too long"];
  assert.equal(reasons.at(-1), noHello, "a deadline that began anew with the hello would be the last one");
  assert.deepEqual(reasons.sort(), [noHello, noHello, tooLong]);
});

test("a carrier that has to prove itself counts once among the unauthenticated, and keeps nothing of its request", async (t) => {
  await using it = await portOf(() => hostOf("default", { innerTls: "auto" }));
  const counts: number[] = [];
  const add = UNAUTHENTICATED.add.bind(UNAUTHENTICATED);
  t.mock.method(UNAUTHENTICATED, "add", (connection: Unauthenticated) => {
    add(connection);
    counts.push(UNAUTHENTICATED.size);
  });
  const { socket } = it.ask({});
  await once(socket, "data"); // 101
  assert.deepEqual(counts, [1, 1], "as a connection without a request, and as a carrier without a hello");
  const [upgraded] = it.accepted;
  assert.equal((upgraded as { _httpMessage?: unknown } | undefined)?._httpMessage ?? undefined, undefined);
  socket.destroy();
});

test("a peer whose time is over while this process is busy has not cut the connection, and the log says what took too long", async () => {
  const handshakeTimeoutMs = 500;
  const tls = {
    ...{ ...pki.server, notAfter: new Date() },
    /** Is read when the time that is left is known, and no timer for it has begun. */
    get ca() {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * handshakeTimeoutMs);
      return pki.ca.cert;
    },
  };
  await using it = await portOf(() => hostOf("default", { innerTls: "auto", tls }), { handshakeTimeoutMs });
  const { socket, over } = it.ask({});
  socket.write(INNER_HELLO);
  await over;
  await until(() => it.lines.length > 0);
  assert.equal(it.lines[0]?.["reason"], "the inner TLS handshake took too long");
});

test("agents whose tokens are verified for long push nobody of another cluster out, and are bounded in their own", async () => {
  let answerVerification: (verdict: VerificationResult) => void = () => {};
  const verdict = new Promise<VerificationResult>((resolve) => {
    answerVerification = resolve;
  });
  const slow = hostOf("slow", { verifier: { verify: () => verdict, close: () => {} } });
  const quick = hostOf("quick");
  await using it = await portOf((name) => (name === "slow" ? slow : quick), {
    maxWaitingConnections: 1,
    maxTokenVerifications: 3,
  });
  const { agents: verifying } = slow.tunnels.verifying;
  const askSlow = () => it.ask({ servername: "slow" }, "Authorization: Bearer a.b.c\r\n");
  const held = [];
  for (let count = 1; count <= 3; count++) {
    held.push(askSlow());
    await until(() => verifying.size === count);
  }
  const oldest = held.shift();
  held.push(askSlow());
  const dropped = (await oldest?.over) ?? "";
  assert.match(dropped, /^HTTP\/1\.1 503 /);
  assert.match(dropped, /\r\nretry-after: 1\r\n/i);
  assert.match(dropped, /too many tokens of agents of cluster "slow" are being verified \(--max-token-verifications\)/);
  assert.match(await it.ask({ servername: "quick" }).over, /^HTTP\/1\.1 401 /);

  held.pop()?.socket.destroy();
  await until(() => verifying.size === 2);
  held.push(askSlow());
  await until(() => verifying.size === 3);
  answerVerification({ refused: "the token is none" });
  for (const { over } of held) assert.match(await over, /^HTTP\/1\.1 401 .*the token is none/s);
  assert.equal(verifying.size, 0);
  assert.equal(it.dropped(), 0);
});

test("a name beside an agent's token is the name of the cluster that it came to, or it is refused unjudged", async () => {
  const asked: string[] = [];
  const verify = async (token: string): Promise<VerificationResult> => {
    asked.push(token);
    return { refused: "the token is none" };
  };
  const host = hostOf("blue", { verifier: { verify, close: () => {} } });
  await using it = await portOf(() => host);
  const basic = (text: string) => `Authorization: Basic ${Buffer.from(text).toString("base64")}\r\n`;
  assert.match(await it.ask({}, basic("red:t1")).over, /^HTTP\/1\.1 401 .*cluster "red", which is not served here/s);
  assert.match(await it.ask({}, basic("blue:t2")).over, /^HTTP\/1\.1 401 .*the token is none/s);
  assert.deepEqual(asked, ["t2"]);
});

/** Reasons of the refusals that are written at a level of their own. */
const toldReasons = (lines: readonly Line[]) =>
  lines.filter(({ level, msg }) => level !== "debug" && msg === "agent refused").map(({ reason }) => String(reason));

test("a doctor's request is no refused agent, unless it shows a credential or asks for a tunnel", async () => {
  const refuse = async (): Promise<VerificationResult> => ({ refused: "the token is none" });
  await using it = await portOf(() => hostOf("default", { verifier: { verify: refuse, close: () => {} } }));
  const look = `Host: x\r\nConnection: close\r\nUser-Agent: culvert-doctor/0.1.0\r\n`;
  assert.match(await it.send({}, `GET ${TUNNEL_PATH} HTTP/1.1\r\n${look}\r\n`), /^HTTP\/1\.1 401 /);
  assert.deepEqual(
    it.lines.map(({ level, msg }) => [level, msg]),
    [["debug", "a doctor's request without a credential was refused"]],
  );
  await it.send({}, `GET ${TUNNEL_PATH} HTTP/1.1\r\n${look}Authorization: Bearer t1\r\n\r\n`);
  await it.ask({}, "User-Agent: culvert-doctor/0.1.0\r\n").over;
  await it.send({}, `GET ${TUNNEL_PATH} HTTP/1.1\r\n${look.replace("-doctor", "")}\r\n`);
  assert.equal(toldReasons(it.lines).length, 3);
});

test("a flood without a credential, or of one bad kind, hides no refusal of another", async () => {
  const refuse = async (): Promise<VerificationResult> => ({ refused: "the token is none" });
  const host = hostOf("default", { verifier: { verify: refuse, close: () => {} } });
  await using it = await portOf(() => host);
  for (let count = 0; count < 11; count++) await it.ask({}).over;
  assert.equal(toldReasons(it.lines).length, 10);
  const ofAnotherCa = await pki.other.issue({ cn: "konnectivity-agent", usage: "client" });
  for (let count = 0; count < 11; count++) await it.ask(ofAnotherCa).over;
  assert.equal(toldReasons(it.lines).length, 20);
  await it.ask(await pki.ca.issue({ cn: "konnectivity-agent", usage: "server" })).over;
  await it.ask(pki.caller, "Authorization: Bearer a.b.c\r\n").over;
  const elsewhere = `GET ${TUNNEL_PATH}/elsewhere`;
  await it.ask(pki.agent, "", elsewhere).over;
  const told = toldReasons(it.lines).slice(20);
  assert.equal(told.length, 3);
  assert.match(told[0] ?? "", /lacks clientAuth/);
  assert.equal(told[1], "the token is none");
  assert.match(told[2] ?? "", /^agents connect at /);
});

test("an unauthenticated peer makes up no kinds of refusals: names, tokens and paths of its own choice share ten lines", async () => {
  const refuse = async (token: string): Promise<VerificationResult> => ({ refused: `the token ${token} is none` });
  const tokens = hostOf("tokens", { verifier: { verify: refuse, close: () => {} } });
  await using it = await portOf((name) => (name === "tokens" ? tokens : hostOf("default")));
  for (let count = 0; count < 12; count++) {
    await it.ask({ servername: "tokens" }, `Authorization: Bearer a.b.${count}\r\n`).over;
    await it.ask({ ...(await pki.other.issue({ cn: `agent-${count}`, usage: "client" })) }).over;
    await it.ask({}, `Authorization: Bearer a.b.${count}\r\n`).over;
  }
  assert.equal(toldReasons(it.lines).length, 30);
});

test("what comes after the upgrade without a credential hides no refusal of an agent that showed one", async () => {
  const host = hostOf("default", { innerTls: "auto" });
  await using it = await portOf(() => host);
  const refused = async (by: ConnectionOptions, headers = "") => {
    const { socket } = it.ask(by, headers);
    const { length } = it.lines;
    socket.write(
      textFrame({ type: "hello", version: 1, agentId: "a", instance: "i", software: "test/1" }, Buffer.alloc(4)),
    );
    await until(() => it.lines.length > length);
    socket.destroy();
  };
  for (let count = 0; count < 11; count++) await refused({});
  assert.equal(toldReasons(it.lines).length, 10);
  await refused(await pki.other.issue({ cn: "konnectivity-agent", usage: "client" }));
  assert.match(toldReasons(it.lines).at(10) ?? "", /is not signed by a CA that is accepted here/);
  await refused({}, "Authorization: Bearer a.b.c\r\n");
  assert.equal(toldReasons(it.lines).length, 12, "also where tokens are not taken");
});
