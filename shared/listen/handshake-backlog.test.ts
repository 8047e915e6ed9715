import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { UNBOUNDED } from "../limits/memory-account.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import { HandshakeBacklog, type HandshakeBacklogOptions } from "./handshake-backlog.ts";
import { IncomingConnection } from "./incoming-connection.ts";
import { PrefaceReader } from "./preface.ts";

/** A backlog in front of handshakes that are begun one at a time, and over when the test says so. */
class Fixture implements AsyncDisposable {
  readonly begun: IncomingConnection[] = [];
  readonly failed: string[] = [];
  readonly backlog: HandshakeBacklog;
  readonly #server: Server;
  readonly #accepted: Socket[] = [];
  readonly #clients: Socket[] = [];
  readonly #held: (() => void)[] = [];

  constructor(options: Partial<HandshakeBacklogOptions>) {
    this.backlog = new HandshakeBacklog({
      ...{ awaited: "TLS handshake", maxWaiting: 1_000, deadlineMs: 60_000, maxBegun: 1, turnsAway: false },
      ...{ mostBytes: 1_000, memory: UNBOUNDED },
      readerFor: () => new PrefaceReader({ proxyHeader: "ignored", name: false }),
      admit: () => true,
      mayBegin: () => true,
      begin: (connection) => this.begun.push(connection),
      onFailed: ({ how, error }) => this.failed.push(`${how}: ${error.message}`),
      ...options,
    });
    this.#server = createServer((raw) => {
      this.#accepted.push(raw.on("error", () => {}));
      this.backlog.add(new IncomingConnection(raw));
    });
  }

  async listen(): Promise<this> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    return this;
  }

  /** Destroys the socket of the client with this number, which closes later (paced-close.ts). */
  cut(index: number): void {
    const raw = this.#accepted[index] as Socket;
    const release = raw._destroy;
    raw._destroy = (error, done) => this.#held.push(() => release.call(raw, error, done));
    raw.destroy();
  }

  /** One more client that has been accepted, and has been heard if it says something. */
  async client(words = ""): Promise<Socket> {
    const { port } = this.#server.address() as AddressInfo;
    const place = this.#accepted.length;
    const socket = connect({ port, host: "127.0.0.1" }).on("error", () => {});
    this.#clients.push(socket.resume());
    socket.write(words);
    await until(() => this.#accepted.length > place);
    const raw = this.#accepted[place];
    if (words !== "") await until(() => raw?.destroyed === true || (raw?.bytesRead ?? 0) > 0);
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.backlog.clear();
    for (const release of this.#held) release();
    for (const socket of [...this.#accepted, ...this.#clients]) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

test("who says nothing never begins, and does not keep those out who speak", async () => {
  await using it = await new Fixture({ maxBegun: 2 }).listen();
  await it.client();
  await it.client("hello");
  await until(() => it.begun.length === 1);
  assert.equal(it.backlog.size, 1);
  const { raw } = it.begun[0] ?? assert.fail();
  assert.equal(String(raw.read()), "hello", "what was read is there again for whoever comes next");
});

test("one silent connection too many drops the oldest", async () => {
  await using it = await new Fixture({ maxBegun: 2 }).listen();
  const closed = once(await it.client(), "close");
  await it.client();
  await it.client();
  await closed;
  assert.equal(it.backlog.size, 2);
  assert.deepEqual(it.failed, ["dropped: too many TLS handshakes at once: the oldest was dropped"]);
});

test("what is read of those that wait is counted, until they go on, leave, or have sent too much", async () => {
  const pool = new MemoryPool(2 ** 30);
  let mayBegin = false;
  await using it = await new Fixture({ memory: pool.share(""), mayBegin: () => mayBegin }).listen();
  const leaves = await it.client("n".repeat(100));
  await it.client("n".repeat(200));
  await until(() => pool.held === 300);
  leaves.destroy();
  await until(() => pool.held === 200);
  await once(await it.client("n".repeat(1_001)), "close");
  assert.equal(it.failed.at(-1), "failed: it sent too much before its TLS handshake had begun");
  assert.equal(pool.held, 200);
  mayBegin = true;
  await until(() => it.begun.length === 1);
  assert.equal(pool.held, 0);
});

test("a little more while it waits is too much as well", async () => {
  await using it = await new Fixture({ mayBegin: () => false }).listen();
  const socket = await it.client("n".repeat(600));
  socket.write("n".repeat(600));
  await once(socket, "close");
  assert.deepEqual(it.failed, ["failed: it sent too much before its TLS handshake had begun"]);
});

test("where memory is short those that have waited for longest go", async () => {
  const pool = new MemoryPool(1_000);
  await using it = await new Fixture({ memory: pool.share(""), mayBegin: () => false }).listen();
  for (let i = 0; i < 3; i++) await it.client("n".repeat(300));
  pool.share("red").hold(300);
  await until(() => it.failed.length > 0);
  assert.equal(it.failed[0], "crowded: memory is short, and it waited for its TLS handshake");
  assert.ok(pool.held <= 900);
});

test("a client that gives up while it waits is not begun", async () => {
  await using it = await new Fixture({}).listen();
  for (let i = 0; i < 40; i++) await it.client("hello"); // far more than begin before the next one has gone
  const impatient = await it.client("bye");
  impatient.destroy();
  await until(() => it.failed.length === 1);
  assert.match(it.failed[0] ?? "", /^failed: the connection ended while it waited/);
  await until(() => {
    for (const connection of it.begun) it.backlog.done(connection);
    return it.backlog.size === 0;
  });
  assert.equal(it.begun.length, 40);
});

test("who waits for longer than the deadline is dropped, silent or not", async () => {
  await using it = await new Fixture({ deadlineMs: 150 }).listen();
  await it.client("first");
  await until(() => it.begun.length === 1);
  await it.client("second");
  await it.client();
  await until(() => it.failed.length === 2);
  assert.deepEqual(it.failed.toSorted(), [
    "late: TLS handshake timeout: its turn did not come",
    "silent: TLS handshake timeout: it sent nothing",
  ]);
  assert.equal(it.backlog.size, 0);
});

test("when all places are taken by clients that wait, the oldest of the network with most is dropped", async () => {
  await using it = await new Fixture({ maxWaiting: 2 }).listen();
  for (let i = 0; it.failed.length === 0; i++) {
    assert.ok(i < 1_000);
    await it.client("hello");
  }
  assert.equal(it.failed[0], "crowded: too many connections wait for their TLS handshake: the oldest was dropped");
  assert.ok(it.backlog.size <= 2);
});

test("a backlog that turns clients away lets one in eight in to be told when to come back", async () => {
  await using it = await new Fixture({ maxWaiting: 2, turnsAway: true }).listen();
  const told = () => it.begun.filter(({ backInMs }) => backInMs !== undefined);
  for (let over = 0; told().length < 2; over++) {
    assert.ok(over < 1_000);
    for (let i = 0; i < 3; i++) await it.client("hello"); // more come than go
    await until(() => it.begun.length > over);
    it.backlog.done(it.begun[over] ?? assert.fail());
  }
  for (const { backInMs = -1 } of told()) assert.ok(backInMs >= 0 && backInMs <= 20_000);
  assert.ok(it.begun.length >= 8 * told().length);
});

test("one whose socket is destroyed, though it has not closed yet, is passed over for the next", async () => {
  await using it = await new Fixture({ maxBegun: 1 }).listen();
  for (const words of ["first", "second", "third"]) await it.client(words);
  await until(() => it.begun.length === 1);
  it.cut(1);
  it.backlog.done(it.begun[0] ?? assert.fail());
  await until(() => it.begun.length === 2);
  await turn();
  assert.equal(it.begun[1]?.raw.destroyed, false);
  assert.equal(it.backlog.size, 0);
});
