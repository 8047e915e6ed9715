import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { until } from "../basics/testing/wait.ts";
import { TurnQueue } from "../basics/timers.ts";
import { Authority } from "../pki/certificates.ts";
import { PacedClose, PEER_GONE } from "./paced-close.ts";

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

  /** Waits until a listener knows that the peer has gone. */
  heard(): this {
    return this.once(PEER_GONE, () => this.gone++);
  }
}

function here(pacedClose: PacedClose, count: number, make = () => new Connection()): Connection[] {
  return Array.from({ length: count }, () => {
    const connection = make();
    pacedClose.arrived(connection);
    pacedClose.watch(connection);
    return connection.resume();
  });
}

/** All are cut in one turn. */
function cut(connections: readonly Connection[]): void {
  for (const connection of connections) {
    connection.on("error", () => {}).destroy(Object.assign(new Error("read ECONNRESET"), { syscall: "read" }));
  }
}

/** Their peers end, and all are destroyed in one turn. */
async function end(connections: readonly Connection[]): Promise<void> {
  for (const connection of connections) connection.push(null);
  await until(() => connections.every(({ readableEnded }) => readableEnded));
  for (const connection of connections) connection.destroy();
}

const count = (connections: readonly Connection[], which: "released" | "gone"): number =>
  connections.reduce((sum, each) => sum + each[which], 0);

test("one of many that is cut says so in its turn, and keeps its place until a newcomer takes it", async () => {
  const pacedClose = new PacedClose(new TurnQueue(), MANY);
  const old = here(pacedClose, MANY, () => new Connection().heard());
  cut(old);
  assert.ok(old.every(({ destroyed }) => destroyed));
  assert.ok(pacedClose.held > 0 && pacedClose.held < MANY, `${pacedClose.held} had their turn at once`);
  await until(() => pacedClose.held === MANY);
  assert.deepEqual([count(old, "gone"), count(old, "released")], [MANY, 0]);
  const [first] = here(pacedClose, 2) as [Connection, Connection];
  await until(() => old.filter(({ closed }) => closed).length === 2);
  assert.equal(pacedClose.held, MANY - 2);
  await once(first.destroy(), "close");
  here(pacedClose, 1);
  assert.equal(pacedClose.held, MANY - 2, "the place of the one that has closed is free");
  here(pacedClose, MANY);
  assert.equal(pacedClose.held, 0);
  await until(() => old.every(({ closed }) => closed));
  assert.ok(old.every(({ released }) => released === 1));
});

test("peers that come and are cut again and again take no more places than were taken when the first was lost", async () => {
  const pacedClose = new PacedClose(new TurnQueue(), MANY);
  const all = here(pacedClose, 3 * MANY, () => new Connection().heard());
  const open = () => all.filter(({ closed }) => !closed).length;
  cut(all.slice(0, 1));
  await until(() => pacedClose.held === 1);
  for (const other of all.slice(1, 2 * MANY)) other.destroy();
  await turn(); // `close` comes later than `closed`
  for (let times = 0; times < MANY; times++) {
    const newcomers = here(pacedClose, 5, () => new Connection().heard());
    all.push(...newcomers);
    cut(newcomers);
    await until(() => newcomers.every(({ gone, closed }) => gone > 0 || closed));
    await turn();
    assert.ok(open() <= 3 * MANY, `${open()} are open`);
  }
  assert.deepEqual([open(), pacedClose.held], [3 * MANY, 2 * MANY]);
  pacedClose.end();
});

test("nobody keeps a place for more than 60 s, nor once it is over", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const pacedClose = new PacedClose(new TurnQueue(), MANY);
  const lost = here(pacedClose, MANY, () => new Connection().heard());
  cut(lost);
  await until(() => pacedClose.held === MANY);
  t.mock.timers.tick(59_999);
  assert.equal(pacedClose.held, MANY);
  t.mock.timers.tick(1);
  assert.equal(pacedClose.held, 0);
  await until(() => lost.every(({ closed }) => closed));

  const others = here(pacedClose, MANY, () => new Connection().heard());
  cut(others);
  await until(() => pacedClose.held === MANY);
  pacedClose.end();
  await until(() => others.every(({ closed }) => closed));
  const last = here(pacedClose, MANY, () => new Connection().heard());
  cut(last);
  await until(() => last.every(({ closed }) => closed));
  assert.equal(count(last, "gone"), 0);
});

for (const { what, present, make, lose } of [
  { what: "few that are cut", present: MANY - 1, make: () => new Connection().heard(), lose: cut },
  { what: "many that are cut, to whom nobody listens,", present: MANY, make: () => new Connection(), lose: cut },
  // It may have been TLS that has ended, and the peer goes on to send beneath it.
  { what: "many that have ended", present: MANY, make: () => new Connection().heard(), lose: end },
]) {
  test(`${what} are released in their turn`, async () => {
    const pacedClose = new PacedClose(new TurnQueue(), MANY);
    const lost = here(pacedClose, present, make);
    await lose(lost);
    assert.ok(count(lost, "released") > 0 && count(lost, "released") < present);
    await until(() => lost.every(({ closed }) => closed));
    assert.deepEqual([pacedClose.held, count(lost, "gone")], [0, 0]);
  });
}

test("a connection that is destroyed while more is to be read from it harms nobody", { timeout: 10_000 }, async () => {
  const turns = new TurnQueue();
  const pacedClose = new PacedClose(turns);
  const ca = await Authority.create("ca");
  const server = createTlsServer(await ca.issue({ cn: "server", usage: "server" }), (socket) => {
    pacedClose.watch(socket);
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
  const pacedClose = new PacedClose(new TurnQueue());
  const [accepted, clients]: [Socket[], Socket[]] = [[], []];
  const server = createServer((socket) => {
    pacedClose.watch(socket);
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
