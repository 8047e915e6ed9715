import assert from "node:assert/strict";
import { test } from "node:test";
import { connect as dialTls, type TLSSocket } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import { frame, textFrame } from "../shared/link/testing/frames.ts";
import { request } from "./testing/insecure-port.ts";
import { collect, type TestServer } from "./testing/server.ts";
import { agentAt, type Tenant, Tenants } from "./testing/tenants.ts";

/** The bound of a cluster with few agents (`server/tunnels/agent-limits.ts`). */
const ALLOWED = 16;
/** Longer than any test. */
const NEVER_MS = 600_000;

/** A connection with this certificate, the tenant's if none is given, that asks for the upgrade; and its answer. */
async function upgraded(
  server: TestServer,
  tenant: Tenant,
  certificate: object = tenant.agent,
): Promise<{ socket: TLSSocket; answer: string }> {
  const port = server.addresses.agents?.port ?? 0;
  const where = { port, host: "127.0.0.1", servername: tenant.sni, ca: tenant.authority.cert, allowHalfOpen: true };
  const socket = dialTls({ ...where, ...certificate }).on("error", () => {});
  const reads = collect(socket);
  socket.write(request(`Host: ${tenant.sni}`));
  await until(() => reads.join("").includes("\r\n\r\n") || socket.destroyed);
  return { socket, answer: reads.join("") };
}

/** This number of connections that are upgraded and send `hello`, or nothing. */
async function hold(server: TestServer, tenant: Tenant, hello?: Buffer): Promise<TLSSocket[]> {
  const sockets: TLSSocket[] = [];
  for (let count = 0; count < ALLOWED; count++) {
    const { socket, answer } = await upgraded(server, tenant);
    assert.match(answer, /^HTTP\/1\.1 101 /);
    if (hello !== undefined) socket.write(hello);
    sockets.push(socket);
  }
  return sockets;
}

/** Dials as an agent does, again and again, until it has a tunnel. */
async function getsIn(server: TestServer, tenant: Tenant): Promise<void> {
  await until(async () => {
    const agent = await agentAt(server, tenant.name, { at: tenant, by: tenant.agent }).catch(() => undefined);
    agent?.session.destroy();
    return agent !== undefined;
  });
}

function end(sockets: readonly TLSSocket[]): void {
  for (const socket of sockets) socket.destroy();
}

test("a credential gets a limited number of connections without a hello, and no agent of another cluster notices", async () => {
  await using tenants = await Tenants.create(["blue", "green"]);
  const [blue, green] = [tenants.get("blue"), tenants.get("green")];
  const server = await tenants.start({ maxAgents: 2, helloTimeoutMs: NEVER_MS });
  const { session: before } = await agentAt(server, "blue", { at: blue, by: blue.agent, agentId: "before" });
  const silent = await hold(server, blue);

  const { answer } = await upgraded(server, blue);
  assert.match(answer, /^HTTP\/1\.1 503 /);
  assert.match(answer, /\r\nretry-after: 1\r\n/i);
  assert.match(
    answer,
    /agents of cluster "blue" have not sent their hello, or are closing \(--max-agents\): come back in 1 s\n$/,
  );
  const told = server.lines.filter(({ msg, cluster }) => msg === "agent refused" && cluster === "blue");
  assert.deepEqual(
    told.map(({ level, code }) => [level, code]),
    [["warn", 503]],
  );
  const metrics = await server.metrics.registry.metrics();
  assert.match(metrics, /^culvert_server_agents_refused_total\{[^}]*503[^}]*\} 1$/m);
  const { session } = await agentAt(server, "green", { at: green, by: green.agent });

  silent.pop()?.destroy();
  await until(() => server.lines.some(({ msg, code }) => msg === "agent refused" && code === "hello"), "its line");
  await getsIn(server, blue);
  for (const open of [before, session]) open.destroy();
  end(silent);
});

test("after --hello-timeout the cluster's own agents get in again", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  const server = await tenants.start({ maxAgents: 2, helloTimeoutMs: 500 });
  const silent = await hold(server, blue);
  await getsIn(server, blue);
  end(silent);
});

test("a hello that announces an inner TLS which never begins keeps the place of its connection", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  await blue.write({ agents: { innerTls: "auto" } });
  const server = await tenants.start({ maxAgents: 2, handshakeTimeoutMs: NEVER_MS });
  const silent = await hold(server, blue, textFrame({ type: "hello", version: 1, inner: true }, Buffer.alloc(4)));
  assert.match((await upgraded(server, blue)).answer, /^HTTP\/1\.1 503 /);
  end(silent);
});

const CLOSE = frame({ opcode: 8, payload: Buffer.from("\x03\xe8link_ended", "latin1"), mask: Buffer.alloc(4) });

/** Sends a hello on each of these connections and something behind it, and waits until the tunnels are gone. */
async function beginAndEnd(server: TestServer, sockets: readonly TLSSocket[], end: Buffer): Promise<void> {
  for (const [index, socket] of sockets.entries()) {
    const hello = { type: "hello", version: 1, agentId: `a${index}`, instance: `i${index}`, software: "test" };
    socket.write(Buffer.concat([textFrame(hello, Buffer.alloc(4)), end]));
  }
  const ends = ["tunnel closed", "tunnel lost", "agent refused"];
  await until(() => server.lines.filter(({ msg }) => ends.includes(String(msg))).length === sockets.length);
}

test("connections that an agent has closed and does not end keep their places", async () => {
  await using tenants = await Tenants.create(["blue", "green"]);
  const [blue, green] = [tenants.get("blue"), tenants.get("green")];
  const server = await tenants.start({ maxAgents: 2 });
  const sockets = await hold(server, blue);
  await beginAndEnd(server, sockets, CLOSE);
  const { answer } = await upgraded(server, blue);
  assert.match(answer, /^HTTP\/1\.1 503 .*, or are closing \(--max-agents\)/s);
  const { session } = await agentAt(server, "green", { at: green, by: green.agent });
  session.destroy();
  await getsIn(server, blue);
  end(sockets);
});

test("a connection that is closed for what stands right behind its hello keeps its place as well", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  const server = await tenants.start({ maxAgents: 2 });
  const sockets = await hold(server, blue);
  await beginAndEnd(server, sockets, textFrame({ type: "ack" }, Buffer.alloc(4)));
  assert.match((await upgraded(server, blue)).answer, /^HTTP\/1\.1 503 /);
  end(sockets);
});

test("peers without a credential that close take no place of the cluster's agents", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  await blue.write({ agents: { innerTls: "auto" } });
  const server = await tenants.start({ maxAgents: 2 });
  const hello = textFrame({ type: "hello", version: 1, inner: true }, Buffer.alloc(4));
  const sockets: TLSSocket[] = [];
  for (let count = 0; count < ALLOWED; count++) {
    const { socket, answer } = await upgraded(server, blue, {});
    assert.match(answer, /^HTTP\/1\.1 101 /);
    const before = socket.bytesRead;
    socket.write(Buffer.concat([hello, CLOSE]));
    await until(() => socket.bytesRead > before); // the server's close frame
    sockets.push(socket);
  }
  assert.match((await upgraded(server, blue)).answer, /^HTTP\/1\.1 101 /);
  end(sockets);
});
