import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { until } from "../../shared/basics/testing/wait.ts";
import { type RunningSidecar, startSocks5 } from "../harness/sidecar.ts";
import { within } from "../harness/wait.ts";
import { startWorld } from "../harness/world.ts";

const GREETING = Buffer.of(5, 1, 0);
/** Bytes that have not come by then do not come. */
const READ_MS = 45_000;

/** The greeting and the request of a SOCKS client at once, as some send them. */
function requestOf({ host, port }: { readonly host: string; readonly port: number }): Buffer {
  const address = Buffer.from([5, 1, 0, 1, ...host.split(".").map(Number), port >> 8, port & 0xff]);
  return Buffer.concat([GREETING, address]);
}

/** A client of the proxy. */
class Client {
  readonly socket: Socket;
  #bytes = Buffer.alloc(0);

  constructor(proxy: RunningSidecar) {
    this.socket = connect({ host: "127.0.0.1", port: proxy.port });
    this.socket.on("error", () => {});
    this.socket.on("data", (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
    });
  }

  /** By events: a thousand clients that poll would leave the loop of this process no time to read. */
  async read(length: number): Promise<Buffer> {
    while (this.#bytes.length < length) {
      await within(once(this.socket, "data"), READ_MS, `${length} bytes`);
    }
    const bytes = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return bytes;
  }
}

/** A client whose target is connected. */
async function opened(
  proxy: RunningSidecar,
  target: { readonly host: string; readonly port: number },
): Promise<Client> {
  const client = new Client(proxy);
  client.socket.write(requestOf(target));
  assert.deepEqual([...(await client.read(12)).subarray(0, 4)], [5, 0, 5, 0]);
  return client;
}

const targetOf = ({ port }: { readonly port: number }) => ({ host: "127.0.0.1", port });

test("a thousand connections at once each have their own bytes", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using proxy = await startSocks5(world);
  const target = targetOf(world.targets.echo);
  const clients = await Promise.all(Array.from({ length: 1_000 }, () => opened(proxy, target)));
  const texts = clients.map((_, at) => `this is connection ${at}`);
  for (const [at, { socket }] of clients.entries()) socket.end(texts[at] ?? "");
  const echoed = await Promise.all(clients.map((client, at) => client.read(texts[at]?.length ?? 0)));
  assert.deepEqual(echoed.map(String), texts);
  for (const { socket } of clients) socket.destroy();
  await until(async () => (await proxy.sidecar.metrics.registry.metrics()).includes("culvert_sidecar_connections 0\n"));
});

test("clients that read nothing of much data hold no other client up", async () => {
  await using world = await startWorld({ targets: ["echo", "source"] });
  await using proxy = await startSocks5(world);
  const source = targetOf(world.targets.source);
  const slow = await Promise.all(Array.from({ length: 20 }, () => opened(proxy, source)));
  for (const { socket } of slow) socket.pause();
  const quick = await opened(proxy, targetOf(world.targets.echo));
  for (let times = 0; times < 50; times++) {
    const begin = performance.now();
    quick.socket.write("hello");
    assert.equal(String(await quick.read(5)), "hello");
    assert.ok(performance.now() - begin < 1_000);
  }
  for (const { socket } of [...slow, quick]) socket.destroy();
});

test("whatever a client sends, it ends its own connection only", async () => {
  await using world = await startWorld({ targets: ["echo"] });
  await using proxy = await startSocks5(world, { handshakeTimeoutMs: 200 });
  const honest = await opened(proxy, targetOf(world.targets.echo));
  const chunk = fc.oneof(
    fc.uint8Array({ maxLength: 600 }),
    fc.constant(GREETING),
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.concat([GREETING, Buffer.of(5), bytes])),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(chunk, { minLength: 1, maxLength: 4 }), async (chunks) => {
      const socket = connect({ host: "127.0.0.1", port: proxy.port });
      socket.on("error", () => {}).resume();
      for (const bytes of chunks) socket.write(bytes);
      await once(socket, "close", { signal: AbortSignal.timeout(10_000) });
      honest.socket.write("x");
      assert.equal(String(await honest.read(1)), "x");
    }),
    { numRuns: 100 },
  );
  honest.socket.destroy();
});
