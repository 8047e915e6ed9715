import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import type { Lookup } from "../../shared/dial/dial-target.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeDestination, requireDestinationAnswer } from "../../shared/wire/destination-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { Destinations } from "../clusters/destinations.ts";
import { AgentStreams } from "../tunnels/agent-streams.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import { serveDestination } from "./serve-destination.ts";

/** A destination that echoes, and its connections. */
async function echoing(t: TestContext) {
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket.on("error", () => {}));
    socket.pipe(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { sockets, address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

interface Parts {
  readonly allowed?: readonly string[];
  readonly lookup?: Lookup;
  readonly server?: Partial<Pick<ServerContext, "listeners" | "draining">>;
}

/** The session of an agent of cluster "default" with a server. */
function agentOf(t: TestContext, { allowed = [], lookup, server = {} }: Parts) {
  const lines: Record<string, unknown>[] = [];
  const write = (level: string) => (line: object, msg: string) => void lines.push({ level, msg, ...line });
  const log = Object.assign(contextOf().log, { info: write("info"), warn: write("warn"), error: write("error") });
  const destinations = new Destinations(allowed);
  const served = {
    ...{ requireTarget: () => {}, requireAdmission: () => {}, pace: () => 0 },
    requireDestination: (target: Target) => {
      const objection = destinations.objection(target);
      if (objection !== undefined) throw new CulvertError("forbidden", objection);
    },
  };
  const clusters = { get: () => ({ ...served, tunnels: cluster }), reachedBy: () => undefined };
  const context = contextOf({}, { log, clusters, ...server });
  const cluster = context.tunnels.add("default", { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  const facts = { identity: "CN=a", peer: undefined, software: "test", probe: false, identifiers: {} };
  const opener = { cluster, link: { remote: "" }, agent: { agentId: "a", instance: "1", ...facts } };
  const kind = {
    ...{ kind: "destination", maxOpen: 10, rate: { burst: 10, perSecond: 10 } },
    serve: (stream: Stream, head: Buffer) => void serveDestination(stream, head, opener, context, lookup),
  };
  const streams = new AgentStreams(new Set(["destination"]), [kind], opener, context);
  const [near, far] = duplexPair();
  const onStream = (stream: Stream) => streams.onStream(stream);
  const ofServer = new Session("server", new DuplexTransport(near), { onStream, onClosed: () => {} });
  const session = new Session("client", new DuplexTransport(far), { onStream: () => {}, onClosed: () => {} });
  t.after(() => {
    session.destroy();
    ofServer.destroy();
  });
  const ask = async (target: string): Promise<Stream> => {
    const stream = session.open(encodeDestination({ target: parseTarget(target), timeoutMs: 5_000, id: "n1" }));
    stream.on("error", () => {});
    requireDestinationAnswer(await new Promise<Buffer>((resolve, reject) => receiveHead(stream, resolve, reject)));
    return stream;
  };
  return { ask, session, lines, cluster, metrics: () => context.metrics.registry.metrics() };
}

const refusedAs = (code: string, sentence: RegExp) => (error: unknown) => {
  assert.ok(error instanceof CulvertError);
  assert.equal(error.code, code);
  assert.match(error.message, sentence);
  return true;
};

test("an agent reaches a destination that is listed, and the end of each side is passed on", async (t) => {
  const { address } = await echoing(t);
  const agent = agentOf(t, { allowed: [address] });
  const stream = await agent.ask(address);
  assert.match(await agent.metrics(), /culvert_server_destination_connections\{cluster="default"\} 1/);
  stream.end("to the control plane");
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  assert.equal(text, "to the control plane");
  await until(() => agent.lines.length === 1);
  const [line] = agent.lines;
  const { level, msg, id, cluster, agent: by, destination, outcome, bytesUp, bytesDown } = line ?? {};
  assert.deepEqual(
    { level, msg, id, cluster, by, destination, outcome, bytesUp, bytesDown },
    {
      ...{ level: "info", msg: "connection of an agent to a destination closed", id: "n1", cluster: "default" },
      ...{ by: "a", destination: address, outcome: "ok", bytesUp: 20, bytesDown: 20 },
    },
  );
  const metrics = await agent.metrics();
  assert.match(metrics, /culvert_server_destination_connections_total\{cluster="default",outcome="ok"\} 1/);
  assert.match(metrics, /culvert_server_destination_bytes_total\{cluster="default",direction="up"\} 20/);
  assert.match(metrics, /culvert_server_destination_connections\{cluster="default"\} 0/);
});

test("a destination that is not listed is refused before its name is resolved, logged and counted", async (t) => {
  const { address, sockets } = await echoing(t);
  const asked: string[] = [];
  const lookup: Lookup = (host) => void asked.push(host);
  const agent = agentOf(t, { allowed: ["kas:6443"], lookup });
  for (const target of [address, "secret.internal:80", "169.254.169.254:80"]) {
    await assert.rejects(agent.ask(target), refusedAs("forbidden", /is not among the allowed destinations/));
  }
  assert.deepEqual([asked, sockets.length], [[], 0]);
  await until(() => agent.lines.length === 3);
  assert.deepEqual(
    agent.lines.map(({ level, outcome }) => [level, outcome]),
    [1, 2, 3].map(() => ["warn", "forbidden"]),
  );
  assert.match(await agent.metrics(), /destination_connections_total\{cluster="default",outcome="forbidden"\} 3/);
});

test("a listed name is checked again by the address that it resolves to", async (t) => {
  const lookup: Lookup = (_, done) => done(null, [{ address: "169.254.169.254", family: 4 }]);
  const agent = agentOf(t, { allowed: ["kas:80"], lookup });
  await assert.rejects(agent.ask("kas:80"), refusedAs("forbidden", /resolves to 169\.254\.169\.254, a link-local/));
});

test("the server's own ports are no destinations, although they are listed", async (t) => {
  const { address, sockets } = await echoing(t);
  const listeners = () => [{ address: "0.0.0.0", port: parseTarget(address).port }];
  const agent = agentOf(t, { allowed: [address], server: { listeners } });
  await assert.rejects(agent.ask(address), refusedAs("forbidden", /port of this server itself/));
  assert.equal(sockets.length, 0);
});

test("a server that shuts down asks the agent to try another one", async (t) => {
  const { address } = await echoing(t);
  const agent = agentOf(t, { allowed: [address], server: { draining: () => true } });
  await assert.rejects(agent.ask(address), (error) => error instanceof CulvertError && error.retryable);
});

test("sentences about a dial name the server, where the fault is", async (t) => {
  const missing = Object.assign(new Error("no"), { code: "ENOTFOUND" });
  const agent = agentOf(t, { allowed: ["kas:80"], lookup: (_, done) => done(missing, []) });
  await assert.rejects(agent.ask("kas:80"), refusedAs("dial_name", /"kas" does not resolve at this server: check/));
});

test("an agent that resets its stream resets the destination, and a reset of the destination reaches it", async (t) => {
  const { address, sockets } = await echoing(t);
  const agent = agentOf(t, { allowed: [address] });
  const one = await agent.ask(address);
  await until(() => sockets.length === 1);
  one.destroy();
  await until(() => sockets[0]?.destroyed === true);
  const two = await agent.ask(address);
  await until(() => sockets.length === 2);
  sockets[1]?.resetAndDestroy();
  await until(() => two.destroyed);
  assert.equal((two.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");
});
