import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import type { AcceptRules, Protocol } from "./accept-rules.ts";
import { Acceptor } from "./acceptor.ts";
import type { IncomingConnection } from "./incoming-connection.ts";

/** A port whose handshakes end when the test says so. */
class Fixture implements AsyncDisposable {
  readonly begun: IncomingConnection[] = [];
  readonly failed: string[] = [];
  readonly acceptor: Acceptor;
  /** Whether handshakes may begin. */
  isOpen = true;
  /** Connections that have sent something. */
  readonly #heard: IncomingConnection[] = [];
  #accepted = 0;
  readonly #clients: Socket[] = [];
  readonly #held: (() => void)[] = [];
  #port = 0;

  constructor(rules: Partial<AcceptRules>) {
    const budget = { take: () => this.isOpen };
    const protocol: Protocol = {
      ...{ handshakeName: "TLS handshake", mostBefore: 1_000, readsName: () => false, lastWord: undefined },
      admits: () => ++this.#accepted > 0,
      budgetFor: (connection) => {
        this.#heard.push(connection);
        return budget;
      },
      onTurn: (connection) => this.begun.push(connection),
    };
    this.acceptor = new Acceptor(
      {
        ...{ handshakeTimeoutMs: 60_000, maxHandshakes: 100, maxWaitingHandshakes: 1_000, backlog: 128 },
        onHandshakeFailed: ({ how, error }) => this.failed.push(`${how}: ${error.message}`),
        onError: (error) => assert.fail(error),
        ...rules,
      },
      protocol,
    );
  }

  async listen(): Promise<this> {
    this.#port = (await this.acceptor.listen(0, "127.0.0.1")).port;
    return this;
  }

  /** The number of connections whose handshake has not begun. */
  get waiting(): number {
    return this.acceptor.handshakes - this.begun.filter(({ state }) => state === "handshake").length;
  }

  /** Ends the handshake of this connection. */
  over(connection = assert.fail() as IncomingConnection): void {
    this.acceptor.complete(connection, connection.raw);
  }

  /** Destroys the socket of the client with this number, which closes later (paced-close.ts). */
  cut(index: number): void {
    const { raw } = this.#heard[index] ?? assert.fail();
    const release = raw._destroy;
    raw._destroy = (error, done) => this.#held.push(() => release.call(raw, error, done));
    raw.destroy();
  }

  /** Connects one more client, and waits until it was accepted and its words, if any, have been received. */
  async client(words = ""): Promise<Socket> {
    const [accepted, heard] = [this.#accepted, this.#heard.length];
    const socket = connect({ port: this.#port, host: "127.0.0.1" }).on("error", () => {});
    this.#clients.push(socket.resume());
    socket.write(words);
    await until(() => this.#accepted > accepted && (words === "" || this.#heard.length > heard));
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.acceptor.destroyAll();
    for (const release of this.#held) release();
    for (const socket of this.#clients) socket.destroy();
    await until(() => this.acceptor.connections === 0);
  }
}

test("a client that sends nothing never begins, and does not delay those that do", async () => {
  await using it = await new Fixture({ maxHandshakes: 2 }).listen();
  await it.client();
  await it.client("hello");
  await until(() => it.begun.length === 1);
  assert.equal(it.waiting, 1);
  const { raw } = it.begun[0] ?? assert.fail();
  assert.equal(String(raw.read()), "hello", "what was read can be read again after the turn");
});

test("one silent connection too many drops the oldest", async () => {
  await using it = await new Fixture({ maxHandshakes: 2 }).listen();
  const closed = once(await it.client(), "close");
  await it.client();
  await it.client();
  await closed;
  assert.equal(it.waiting, 2);
  assert.deepEqual(it.failed, ["dropped: too many TLS handshakes at once: the oldest was dropped"]);
});

test("bytes of waiting connections are counted until these begin, leave, or have sent too much", async () => {
  const pool = new MemoryPool(2 ** 30);
  await using it = await new Fixture({ memory: pool.share("") }).listen();
  it.isOpen = false;
  const leaves = await it.client("n".repeat(100));
  await it.client("n".repeat(200));
  await until(() => pool.held === 300);
  leaves.destroy();
  await until(() => pool.held === 200);
  await once(await it.client("n".repeat(1_001)), "close");
  assert.equal(it.failed.at(-1), "failed: it sent too much before its TLS handshake had begun");
  assert.equal(pool.held, 200);
  it.isOpen = true;
  await until(() => it.begun.length === 1);
  assert.equal(pool.held, 0);
});

test("a little more while it waits is too much as well", async () => {
  await using it = await new Fixture({}).listen();
  it.isOpen = false;
  const socket = await it.client("n".repeat(600));
  socket.write("n".repeat(600));
  await once(socket, "close");
  assert.deepEqual(it.failed, ["failed: it sent too much before its TLS handshake had begun"]);
});

test("when memory is short, the connections that have waited longest are dropped", async () => {
  const pool = new MemoryPool(1_000);
  await using it = await new Fixture({ memory: pool.share("") }).listen();
  it.isOpen = false;
  for (let i = 0; i < 3; i++) await it.client("n".repeat(300));
  pool.share("red").hold(300);
  await until(() => it.failed.length > 0);
  assert.equal(it.failed[0], "crowded: memory is short, and it waited for its TLS handshake");
  assert.ok(pool.held <= 900);
});

test("a client that closes its connection while it waits does not begin", async () => {
  await using it = await new Fixture({}).listen();
  it.isOpen = false;
  await it.client("hello");
  (await it.client("bye")).destroy();
  await until(() => it.failed.length === 1);
  assert.match(it.failed[0] ?? "", /^failed: the connection ended while it waited/);
  it.isOpen = true;
  await until(() => it.waiting === 0);
  assert.equal(it.begun.length, 1);
});

test("a client that waits longer than the deadline is dropped, silent or not", async () => {
  await using it = await new Fixture({ handshakeTimeoutMs: 150 }).listen();
  it.isOpen = false;
  await it.client("hello");
  await it.client();
  await until(() => it.failed.length === 2);
  assert.deepEqual(it.failed.toSorted(), [
    "late: TLS handshake timeout: its turn did not come",
    "silent: TLS handshake timeout: it sent nothing",
  ]);
  assert.equal(it.waiting, 0);
});

test("when all places are taken by clients that wait, the oldest of the network with most is dropped", async () => {
  await using it = await new Fixture({ maxWaitingHandshakes: 2 }).listen();
  it.isOpen = false;
  for (let i = 0; it.failed.length === 0; i++) {
    assert.ok(i < 1_000);
    await it.client("hello");
  }
  assert.equal(it.failed[0], "crowded: too many connections wait for their TLS handshake: the oldest was dropped");
  assert.ok(it.waiting <= 2);
});

test("a client whose socket is destroyed but has not closed yet is skipped", async () => {
  await using it = await new Fixture({ maxHandshakes: 1 }).listen();
  for (const words of ["first", "second", "third"]) await it.client(words);
  await until(() => it.begun.length === 1);
  it.cut(1);
  it.over(it.begun[0]);
  await until(() => it.begun.length === 2);
  await turn();
  assert.equal(it.begun[1]?.raw.destroyed, false);
  assert.equal(it.waiting, 0);
});
