import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { mock, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { Authority } from "../pki/certificates.ts";
import { Departures, PEER_GONE } from "./departures.ts";
import { TurnQueue } from "./turn-queue.ts";

/** More than one turn releases. */
const MANY = 40;

/** A connection that closes when it is released. */
class Connection extends Duplex {
  released = 0;
  gone = 0;

  constructor() {
    super({ read: () => {}, autoDestroy: false });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.released++;
    done(error);
  }

  /** Whoever listens knows that the peer has gone. */
  heard(): this {
    return this.once(PEER_GONE, () => this.gone++);
  }
}

function here(departures: Departures, count: number, make = () => new Connection()): Connection[] {
  return Array.from({ length: count }, () => {
    const connection = make();
    departures.arrived(connection);
    departures.watch(connection);
    return connection.resume();
  });
}

/** Their peers end, and all are destroyed in one turn. */
async function lose(connections: readonly Connection[]): Promise<void> {
  for (const connection of connections) connection.push(null);
  await until(() => connections.every(({ readableEnded }) => readableEnded));
  for (const connection of connections) connection.destroy();
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await turn();
}

const count = (connections: readonly Connection[], which: "released" | "gone"): number =>
  connections.reduce((sum, each) => sum + each[which], 0);

test("in a rush, who listens hears that the peer has gone, and keeps its place until a newcomer takes it", async () => {
  const departures = new Departures(new TurnQueue());
  const old = here(departures, MANY, () => new Connection().heard());
  await lose(old);
  assert.ok(old.every(({ destroyed }) => destroyed));
  await until(() => count(old, "released") + departures.held === MANY);
  const atOnce = count(old, "released");
  assert.ok(atOnce > 0 && atOnce < MANY, `${atOnce} were released at once`);
  assert.equal(count(old, "gone"), departures.held);
  const [first] = here(departures, 2) as [Connection, Connection];
  assert.equal(departures.held, MANY - atOnce - 2);
  await until(() => old.filter(({ closed }) => closed).length === atOnce + 2);
  await once(first.destroy(), "close");
  here(departures, 1);
  assert.equal(departures.held, MANY - atOnce - 2, "the place of the one that has closed is free");
  here(departures, MANY);
  assert.equal(departures.held, 0);
  await until(() => old.every(({ closed }) => closed));
  assert.ok(old.every(({ released }) => released === 1));
});

test("nobody keeps a place for more than 60 s, nor once it is over", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const departures = new Departures(new TurnQueue());
  const lost = here(departures, MANY, () => new Connection().heard());
  await lose(lost);
  await until(() => count(lost, "released") + departures.held === MANY);
  mock.timers.tick(59_999);
  assert.ok(departures.held > 0);
  mock.timers.tick(1);
  mock.timers.reset();
  assert.equal(departures.held, 0);
  await until(() => lost.every(({ closed }) => closed));

  const others = here(departures, MANY, () => new Connection().heard());
  await lose(others);
  await until(() => departures.held > 0);
  departures.end();
  await until(() => others.every(({ closed }) => closed));
  const last = here(departures, MANY, () => new Connection().heard());
  await lose(last);
  await until(() => last.every(({ closed }) => closed));
});

test("a few are released at once, and of many those to whom nobody listens, in their turn", async () => {
  const departures = new Departures(new TurnQueue());
  const few = here(departures, 3, () => new Connection().heard());
  await lose(few);
  assert.deepEqual([count(few, "released"), count(few, "gone"), departures.held], [3, 0, 0]);
  await turn();
  const many = here(departures, MANY);
  await lose(many);
  assert.ok(count(many, "released") < MANY);
  await until(() => many.every(({ closed }) => closed));
  assert.equal(departures.held, 0);
});

test("a connection that is destroyed while more is to be read from it harms nobody", { timeout: 10_000 }, async () => {
  const turns = new TurnQueue();
  const departures = new Departures(turns);
  const ca = await Authority.create("ca");
  const server = createTlsServer(await ca.issue({ cn: "server", usage: "server" }), (socket) => {
    departures.watch(socket);
    socket.on("error", () => {});
    // TLS has more records in hand, and gives them to whoever is there.
    socket.once("data", () => {
      for (let i = 0; i < MANY; i++) turns.run(() => {}); // it would have to wait
      socket.destroy();
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const client = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
  client.on("error", () => {}).end(Buffer.alloc(256 * 1024));
  await once(server, "secureConnection");
  server.close();
  await once(server, "close"); // its connections too
});

test("connections that their peers reset together still say why, and close", { timeout: 10_000 }, async () => {
  const departures = new Departures(new TurnQueue());
  const [accepted, clients]: [Socket[], Socket[]] = [[], []];
  const server = createServer((socket) => {
    departures.watch(socket);
    socket.on("error", () => {}).resume();
    accepted.push(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  for (let i = 0; i < MANY; i++) clients.push(connect((server.address() as AddressInfo).port, "127.0.0.1"));
  while (accepted.length < clients.length) await turn();
  for (const client of clients) client.resetAndDestroy();
  while (accepted.some((socket) => !socket.closed)) await turn();
  assert.deepEqual(
    [...new Set(accepted.map(({ errored }) => (errored as NodeJS.ErrnoException).code))],
    ["ECONNRESET"],
  );
  server.close();
});
