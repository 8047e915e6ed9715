import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { ConfigError } from "../shared/config/options.ts";
import { recheckAllFiles } from "../shared/documents/file-watcher.ts";
import { LinkServer, testCertificate } from "../shared/link/testing/ends.ts";
import { Authority } from "../shared/pki/certificates.ts";
import { readAnswer } from "../shared/wire/testing/answer.ts";
import { Session } from "../shared/yamux/session.ts";
import type { Agent } from "./agent.ts";
import type { AgentOptions } from "./context/options.ts";
import { open, prepared } from "./testing/agent.ts";
import { listenFor } from "./testing/listener.ts";

/** An agent, a server that takes its tunnel, and the server's sessions. */
async function connected(t: TestContext, change: Partial<AgentOptions> = {}) {
  const { server, start } = await prepared(t, change);
  const agent = await start();
  const session = async (index = 0): Promise<Session> =>
    new Session("server", await server.link(index), { onStream: () => {}, onClosed: () => {} });
  return { agent, server, session };
}

async function get(
  agent: Agent,
  listener: "health" | "admin",
  path: string,
): Promise<{ status: number; text: string }> {
  const answer = await fetch(`http://127.0.0.1:${agent.addresses[listener]?.port}${path}`);
  return { status: answer.status, text: await answer.text() };
}

async function echoServer(t: TestContext): Promise<string> {
  const echo = net.createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket));
  return `127.0.0.1:${await listenFor(t, echo)}`;
}

/** Writes the certificate of an agent and its key. */
async function filesOf(dir: string, { cert, key }: { readonly cert: string; readonly key: string }) {
  const [agentCert, agentKey] = [join(dir, "agent.crt"), join(dir, "agent.key")];
  await Promise.all([writeFile(agentCert, cert), writeFile(agentKey, key)]);
  return { agentCert, agentKey };
}

test("an agent says who it is, and is ready once it has its server", async (t) => {
  const { agent, server } = await connected(t);
  await agent.whenConnected();
  const [result] = server.results;
  assert.equal(result?.status, "fulfilled");
  const { agentId, instance, software } = result.value.hello;
  assert.equal(agentId, "a1");
  assert.match(instance, /^[0-9a-f-]{36}$/);
  assert.match(software, /^culvert\//);
  const { status, text } = await get(agent, "health", "/readyz?verbose");
  assert.equal(status, 200);
  assert.match(text, /connected 1 of 1 wanted/);
  assert.match((await get(agent, "health", "/metrics")).text, /^culvert_agent_connected_servers 1$/m);
  const shown = JSON.parse((await get(agent, "admin", "/status")).text);
  assert.deepEqual([shown.agentId, shown.uplinks[0].state], ["a1", "connected"]);
});

test("an agent without its server is alive and not ready", async (t) => {
  const { agent } = await connected(t, { serverAddress: "127.0.0.1:1" });
  assert.equal((await get(agent, "health", "/healthz")).status, 200);
  const { status, text } = await get(agent, "health", "/readyz");
  assert.equal(status, 503);
  assert.match(text, /connected 0 of 1 wanted/);
});

test("a stream of the server is served, and the agent's own listeners are no targets", async (t) => {
  const { agent, session } = await connected(t);
  const near = await session();
  const stream = open(near, await echoServer(t));
  assert.equal((await readAnswer(stream, 2_000)).ok, true);
  stream.write("ping");
  const [echoed] = await once(stream, "data");
  assert.equal(String(echoed), "ping");
  assert.equal(agent.streamCount, 1);

  for (const listener of ["health", "admin"] as const) {
    const answer = await readAnswer(open(near, `127.0.0.1:${agent.addresses[listener]?.port}`), 2_000);
    assert.ok(!answer.ok);
    assert.match(answer.detail, /listener of the agent itself/);
  }
});

test("close says go-away, lets a stream go on until its end, and is done then", async (t) => {
  const { agent, session } = await connected(t, { drainTimeoutMs: 5_000 });
  const near = await session();
  const stream = open(near, await echoServer(t));
  assert.equal((await readAnswer(stream, 2_000)).ok, true);
  let done = false;
  const closing = agent.close().then(() => {
    done = true;
  });
  while (!near.draining) await new Promise((resolve) => setImmediate(resolve));
  assert.match((await get(agent, "health", "/readyz")).text, /not-draining failed/);
  stream.write("still here");
  assert.equal(String((await once(stream, "data"))[0]), "still here");
  assert.equal(done, false);
  stream.end();
  await closing;
  assert.equal(agent.connected, false);
});

test("an idle agent is closed at once, and waits for no deadline", async (t) => {
  const { agent, session } = await connected(t);
  await session();
  const before = performance.now();
  await agent.close();
  assert.ok(performance.now() - before < 10_000);
});

test("a port that is taken, and files that cannot work, fail the start before any server learns of the agent", async (t) => {
  const { server, dir, caCert, start } = await prepared(t);
  let dialled = 0;
  server.server.on("connection", () => dialled++);
  const port = await listenFor(t, net.createServer());
  const { leaf } = await testCertificate();
  const other = await (await Authority.create("other")).issue({ cn: "agent", usage: "client" });
  const { agentCert, agentKey } = await filesOf(dir, leaf);
  const [otherKey, text] = [join(dir, "other.key"), join(dir, "text")];
  await writeFile(otherKey, other.key);
  await writeFile(text, "no certificate\n");
  for (const [change, sentence] of [
    [{ healthServerPort: port }, /port \d+: it is in use .*\(--health-server-port\)\.$/],
    [{ adminServerPort: port }, /port \d+: it is in use .*\(--admin-server-port\)\.$/],
    [{ caCert: text }, /^--ca-cert: .*\/text holds no PEM certificate .*\.$/],
    [{ agentCert: text, agentKey }, /^--agent-cert: .*\/text holds no PEM certificate .*\.$/],
    [{ agentCert, agentKey: text }, /^--agent-key: .*\/text holds no PEM private key .*\.$/],
    [{ agentCert, agentKey: otherKey }, /^--agent-key: .*\/other\.key does not belong to .*\/agent\.crt\.$/],
    [{ agentCert: caCert, agentKey }, /^--agent-key: .*\/agent\.key does not belong to .*\/ca\.crt\.$/],
    [
      { agentCert: join(dir, "absent"), agentKey },
      /^--agent-cert: .*\/absent cannot be read: there is no such file\.$/,
    ],
  ] as const) {
    await assert.rejects(start(change), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, sentence);
      return true;
    });
  }
  assert.equal(dialled, 0);
  await (await start({ agentCert, agentKey })).whenConnected();
});

test("an agent whose certificate has expired says so and starts: a renewed one may come any time", async (t) => {
  const { dir, lines, start } = await prepared(t);
  const authority = await Authority.create("agents");
  const notAfter = new Date(Math.floor(Date.now() / 1_000) * 1_000 - 60_000);
  const files = await filesOf(dir, await authority.issue({ cn: "agent", usage: "client", notAfter }));
  const agent = await start(files);
  const { level, msg, file, notAfter: said } = lines[0] ?? assert.fail();
  assert.deepEqual([level, file, said], [50, files.agentCert, notAfter.toISOString()]);
  assert.match(msg, /^the certificate of --agent-cert has expired/);
  await agent.whenConnected(); // this server asks for none
});

test("what the agent shows and believes has an end in its metrics, and notice is given in log and readyz", async (t) => {
  const { dir, lines, start } = await prepared(t);
  const now = Math.floor(Date.now() / 1_000);
  const authority = await Authority.create("agents");
  const [notBefore, notAfter] = [new Date((now - 360 * 86_400) * 1_000), new Date((now + 5 * 86_400) * 1_000)];
  const files = await filesOf(dir, await authority.issue({ cn: "agent", usage: "client", notBefore, notAfter }));
  const tokenPath = join(dir, "token");
  const tokenOf = (iat: number, exp: number): string =>
    `e30.${Buffer.from(JSON.stringify({ iat, exp })).toString("base64url")}.c2ln`;
  await writeFile(tokenPath, tokenOf(now - 3_000, now + 500));
  const agent = await start({ ...files, serviceAccountTokenPath: tokenPath, cluster: "blue" });
  await agent.whenConnected();
  const seriesIn = (text: string): string[] =>
    text.split("\n").filter((line) => line.startsWith("culvert_certificate_expiry_timestamp_seconds{"));
  const shown = seriesIn((await get(agent, "health", "/metrics")).text);
  const named = (role: string): string => `culvert_certificate_expiry_timestamp_seconds{role="${role}",cluster="blue"}`;
  assert.deepEqual(
    [shown[0], shown[1]?.split(" ")[0], shown[2]],
    [`${named("agent_cert")} ${now + 5 * 86_400}`, named("server_ca"), `${named("token")} ${now + 500}`],
  );
  const sentences = [
    "the certificate of --agent-cert ends within 7 days: servers refuse this agent from then on",
    "the token of --service-account-token-path ends within 10 minutes: servers refuse this agent from then on",
  ];
  const warned = () =>
    lines.filter(({ level, msg }) => level === 40 && / ends within /.test(msg)).map(({ msg }) => msg);
  assert.deepEqual(warned(), sentences);
  const { status, text } = await get(agent, "health", "/readyz?verbose");
  assert.equal(status, 200);
  for (const sentence of sentences) assert.ok(text.includes(`warning: cluster "blue": ${sentence}`), text);

  await writeFile(tokenPath, tokenOf(now, now + 3_600));
  await until(() => lines.some(({ msg }) => /^credentials have changed/.test(msg)));
  assert.equal(seriesIn(await agent.metrics.registry.metrics())[2], `${named("token")} ${now + 3_600}`);
  assert.equal(warned().length, 2);
});

test("a file that breaks while the agent runs: the next attempts use what it held before, and the log names it once", async (t) => {
  const { server, caCert, lines, start } = await prepared(t, { syncIntervalMs: 20, syncIntervalCapMs: 20 });
  const agent = await start();
  await agent.whenConnected();
  await writeFile(caCert, "");
  for (let lost = 0; lost < 2; lost++) {
    server.upgraded[lost]?.destroy();
    await until(() => server.upgraded.length === lost + 2);
    await agent.whenConnected();
  }
  const complaints = lines.filter(({ level }) => level === 50);
  assert.deepEqual(
    complaints.map(({ msg, reason }) => [msg, reason]),
    [
      [
        "new credentials are not usable, the old ones stay",
        `--ca-cert: the CA certificate ${caCert} holds no PEM certificate (-----BEGIN CERTIFICATE-----)`,
      ],
    ],
  );
});

test("a new certificate that is not valid yet: connections are replaced when its time has come, without another change of the file", async (t) => {
  const { server, dir, lines, start } = await prepared(t);
  const authority = await Authority.create("agents");
  const issue = async (notBefore?: Date) =>
    filesOf(dir, await authority.issue({ cn: "agent", usage: "client", ...(notBefore && { notBefore }) }));
  const agent = await start(await issue());
  await agent.whenConnected();
  const notBefore = new Date(Math.ceil(Date.now() / 1_000) * 1_000 + 1_000);
  await issue(notBefore);
  const said = (what: string) => lines.some(({ msg, reason }) => `${msg}: ${reason}`.includes(what));
  await until(() =>
    said(`the old ones stay: the certificate in the files is not valid before ${notBefore.toISOString()}`),
  );
  assert.equal(server.upgraded.length, 1);
  await until(() => Date.now() >= notBefore.getTime());
  recheckAllFiles(); // as the poll does
  await until(() => said("credentials have changed"));
  await until(() => server.upgraded.length === 2);
});

test("with fewer uplinks than URLs an agent takes servers that work", async (t) => {
  const servers = [await LinkServer.start(), await LinkServer.start()];
  for (const server of servers) t.after(() => server[Symbol.asyncDispose]());
  const urls = ["wss://127.0.0.1:1", "wss://127.0.0.1:2", ...servers.map(({ port }) => `wss://127.0.0.1:${port}`)];
  const { start } = await prepared(t, { server: urls, serverAddress: "", uplinks: "2" });
  const agent = await start({ syncIntervalMs: 5, syncIntervalCapMs: 10 });
  await agent.whenConnected();
  assert.match((await get(agent, "health", "/readyz?verbose")).text, /connected 2 of 2 wanted$/m);
  assert.deepEqual(
    servers.map(({ upgraded }) => upgraded.length),
    [1, 1],
  );
});

test("a number in --uplinks is wanted where no server says how many there are, and no more than there are where one does", async (t) => {
  const { server, start } = await prepared(t, { uplinks: "3" });
  server.refuse = (socket) => {
    if (server.upgraded.length === 0) return false;
    socket.end("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    return true;
  };
  const agent = await start({ syncIntervalMs: 5, syncIntervalCapMs: 10 });
  const link = await server.link();
  const first = await get(agent, "health", "/readyz?verbose");
  assert.deepEqual(
    [first.status, /^\[\+\]servers.*/m.exec(first.text)?.[0]],
    [200, "[+]servers ok: connected 1 of 3 wanted"],
  );
  link.sendControl({ type: "servers", count: 2 });
  let text = "";
  while (!/connected 1 of 2 wanted \(servers: 2\)$/m.test(text)) {
    ({ text } = await get(agent, "health", "/readyz?verbose"));
  }
});

test("a server that names one number of servers after the other begins no flood of uplinks", async (t) => {
  const { server, lines, start } = await prepared(t);
  const agent = await start({ syncIntervalMs: 5, syncIntervalCapMs: 10 });
  await agent.whenConnected();
  const link = await server.link();
  // This server takes every uplink for a new one.
  for (let times = 0; times < 80; times++) link.sendControl({ type: "servers", count: 2 + (times % 2) });
  link.sendControl({ type: "servers", count: 2 });
  let text = "";
  while (!/^\[\+\]servers ok: connected 2 of 2 wanted \(servers: 2\)$/m.test(text)) {
    ({ text } = await get(agent, "health", "/readyz?verbose"));
  }
  const ended = lines.filter(({ msg }) => msg === "uplink closed").length;
  assert.ok(server.upgraded.length <= 3 && ended <= 2, `${server.upgraded.length} tunnels, ${ended} ended`);
});

test("--readiness all asks for every server", async (t) => {
  const { server, start } = await prepared(t);
  const url = `wss://127.0.0.1:${server.port}`;
  const agent = await start({ server: [url, "wss://127.0.0.1:1"], serverAddress: "", readiness: "all" });
  await until(() => server.upgraded.length === 1);
  const { status, text } = await get(agent, "health", "/readyz");
  assert.equal(status, 503);
  assert.match(text, /\[-\]servers failed: connected [01] of 2 wanted; --readiness=all needs 2/);
});
