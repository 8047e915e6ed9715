import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { until } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeDestinationAnswer } from "../../shared/wire/destination-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import type { AgentOptions } from "../context/options.ts";
import { contextOf, optionsOf } from "../testing/context.ts";
import { NodeListeners } from "./node-listeners.ts";

/** The listeners of an agent with a tunnel to a server that answers so and then echoes. */
async function nodeOf(t: TestContext, answer?: CulvertError, change: Partial<AgentOptions> = {}) {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const [near, far] = duplexPair();
  const serve = (stream: Stream): void => {
    stream.on("error", () => {});
    stream.accept();
    receiveHead(
      stream,
      () => {
        stream.write(encodeDestinationAnswer(answer));
        if (answer === undefined) stream.pipe(stream);
        else stream.end();
      },
      () => {},
    );
  };
  const server = new Session("server", new DuplexTransport(far), { onStream: serve, onClosed: () => {} });
  const session = new Session("client", new DuplexTransport(near), { onStream: () => {}, onClosed: () => {} });
  const context = contextOf({ log, options: optionsOf({ bindAddress: "127.0.0.1", ...change }) });
  const tunnel = { serverId: "s1", session, link: { suspended: false, probe: () => {} } };
  const listeners = new NodeListeners(context, () => [tunnel]);
  t.after(async () => {
    await listeners.close();
    session.destroy();
    server.destroy();
  });
  const dial = async (): Promise<Socket> => {
    const [address] = listeners.addresses;
    const socket = connect({ host: "127.0.0.1", port: address?.port ?? 0, allowHalfOpen: true });
    socket.on("error", () => {});
    await once(socket, "connect");
    return socket;
  };
  return { listeners, lines, dial, metrics: () => context.metrics.registry.metrics() };
}

/** A port that is free now. */
async function freeTarget(): Promise<string> {
  const probe = createServer();
  await once(probe.listen(0, "127.0.0.1"), "listening");
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return `${port}:kas:6443`;
}

test("a connection of the node goes through the tunnel, with the end of each side", async (t) => {
  const node = await nodeOf(t, undefined, { target: [await freeTarget()] });
  await node.listeners.open();
  const socket = await node.dial();
  socket.end("to the control plane");
  let text = "";
  for await (const chunk of socket) text += String(chunk);
  assert.equal(text, "to the control plane");
  await until(() => node.lines.some(({ msg }) => msg === "connection of the node closed"));
  const metrics = await node.metrics();
  assert.match(metrics, /culvert_agent_destination_connections_total\{outcome="ok"\} 1/);
  assert.match(metrics, /culvert_agent_destination_bytes_total\{direction="up"\} 20/);
  assert.match(metrics, /culvert_agent_destination_connections 0/);
});

test("a connection that the server refuses is reset, with the reason in log and metrics", async (t) => {
  const refusal = new CulvertError("forbidden", "kas:6443 is not among the allowed destinations");
  const node = await nodeOf(t, refusal, { target: [await freeTarget()] });
  await node.listeners.open();
  const socket = await node.dial();
  const [error] = await once(socket, "error");
  assert.equal(error.code, "ECONNRESET");
  const line = node.lines.find(({ msg }) => msg === "connection of the node was reset");
  assert.deepEqual([line?.["outcome"], line?.["destination"]], ["forbidden", "kas:6443"]);
  assert.match(String(line?.["reason"]), /not among the allowed destinations/);
  assert.match(await node.metrics(), /culvert_agent_destination_connections_total\{outcome="forbidden"\} 1/);
});

test("an agent that drains takes no more connections, and those that are open go on", async (t) => {
  const node = await nodeOf(t, undefined, { target: [await freeTarget()] });
  await node.listeners.open();
  const socket = await node.dial();
  socket.write("1");
  await once(socket, "data");
  const [{ port = 0 } = {}] = node.listeners.addresses;
  node.listeners.drain();
  const late = connect({ host: "127.0.0.1", port });
  const [refused] = await once(late, "error");
  assert.equal(refused.code, "ECONNREFUSED");
  socket.end("2");
  const [more] = await once(socket, "data");
  assert.equal(String(more), "2");
});

test("an address that other hosts can reach is refused, with a way to have it", async (t) => {
  const node = await nodeOf(t, undefined, { bindAddress: "0.0.0.0", target: [await freeTarget()] });
  await assert.rejects(node.listeners.open(), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /could reach --bind-address 0\.0\.0\.0.*--bind-reachable-address/);
    return true;
  });
});

test("an address that the node does not have is named, with the option that adds it", async (t) => {
  const node = await nodeOf(t, undefined, { bindAddress: "100.64.30.10", target: [await freeTarget()] });
  await assert.rejects(node.listeners.open(), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /100\.64\.30\.10 port \d+: this host does not have the address.*--interface lo/);
    return true;
  });
});

test("without --bind-address nothing listens", async (t) => {
  const node = await nodeOf(t, undefined, { bindAddress: "", target: [] });
  await node.listeners.open();
  assert.deepEqual(node.listeners.addresses, []);
});
