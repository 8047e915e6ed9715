import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, Socket } from "node:net";
import { test } from "node:test";
import { IncomingConnection, peerOf } from "./incoming-connection.ts";

for (const host of ["::", "127.0.0.1"]) {
  test(`an IPv4 client of a listener on ${host} is shown as one`, async (t) => {
    const server = createServer().listen(0, host);
    t.after(() => server.close());
    await once(server, "listening").catch(() => t.skip("no IPv6 here"));
    if (!server.listening) return;
    const accepted = once(server, "connection");
    const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
    t.after(() => client.destroy());
    const [socket] = (await accepted) as [Socket];
    t.after(() => socket.destroy());
    assert.equal(peerOf(socket).address, "127.0.0.1");
    const connection = new IncomingConnection(socket);
    assert.equal(connection.remote, `127.0.0.1:${client.localPort}`);
    connection.client = { address: "2001:db8::1", port: 7 };
    assert.equal(connection.source.address, "2001:db8::1");
  });
}

test("a connection is found from its socket, and from the socket that it was handed on to", () => {
  const [raw, onTop, other] = [new Socket(), new Socket(), new Socket()];
  const connection = new IncomingConnection(raw);
  assert.deepEqual([connection.state, connection.socket], ["preface", raw]);
  connection.handedOn(onTop);
  assert.deepEqual([connection.state, connection.socket], ["request", onTop]);
  assert.equal(IncomingConnection.of(raw), connection);
  assert.equal(IncomingConnection.of(onTop), connection);
  assert.equal(IncomingConnection.of(other), undefined);
});

test("a connection has one deadline: another one takes its place", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const connection = new IncomingConnection(new Socket());
  const late: string[] = [];
  connection.setDeadline(10, () => late.push("first"));
  connection.setDeadline(20, () => late.push("second"));
  t.mock.timers.tick(15);
  assert.equal(late.length, 0);
  t.mock.timers.tick(5);
  assert.deepEqual(late, ["second"]);
  connection.setDeadline(20, () => late.push("third"));
  connection.clearDeadline();
  t.mock.timers.tick(60);
  assert.deepEqual(late, ["second"]);
});
