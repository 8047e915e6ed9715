import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { CloseCode, LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";
import { LINK_ENDED } from "./link-events.ts";
import { dial, failure, HELLO, Inbox, LinkServer, RawServer, rawClient, welcome } from "./testing/ends.ts";
import { frame, textFrame } from "./testing/frames.ts";

const KEY = Buffer.from([1, 2, 3, 4]);
/** A polite client's answer to a close frame. */
const CLOSE = frame({ opcode: 8, mask: KEY });

test("hello goes up and welcome comes down, and both name the link", async () => {
  const seen: unknown[] = [];
  await using server = await LinkServer.start({
    welcome: (hello) => {
      seen.push(hello);
      return welcome({ link: "s1-42", keepaliveMs: 5_000 });
    },
  });
  const { link, welcome: answer } = await dial(server.port, { hello: { ...HELLO, cluster: "blue" } });
  const far = await server.link();
  assert.deepEqual(seen, [{ ...HELLO, cluster: "blue" }]);
  assert.deepEqual(answer, welcome({ link: "s1-42", keepaliveMs: 5_000 }));
  assert.deepEqual([link.id, far.id, far.remote], ["s1-42", "s1-42", "test"]);
  assert.equal(link.remote, `127.0.0.1:${server.port}`);
});

test("a refusal before the upgrade carries its status, its body and Retry-After", async () => {
  const table: [answer: string, expected: [status: number, reason: string, retryAfterMs: number | undefined]][] = [
    [
      "HTTP/1.1 401 Unauthorized\r\nRetry-After: 7\r\nContent-Length: 22\r\n\r\nthe certificate\nis old",
      [401, "the certificate is old", 7_000],
    ],
    [`HTTP/1.1 503 Busy\r\nContent-Length: 2000\r\n\r\n${"x".repeat(2_000)}\r\n`, [503, "x".repeat(1_024), undefined]],
    // A body that breaks off, and one that never ends: the status is what counts.
    ["HTTP/1.1 418 Nope\r\nContent-Length: 50\r\n\r\nhalf<cut>", [418, "half", undefined]],
    ["HTTP/1.1 429 Slow down\r\nContent-Length: 50\r\n\r\nwait", [429, "wait", undefined]],
  ];
  await Promise.all(
    table.map(async ([answer, expected]) => {
      await using server = await LinkServer.start();
      server.refuse = (socket) => {
        socket.write(answer.replace("\r\n", "\r\nProxy-Status: culvert\r\n").replace("<cut>", ""));
        if (answer.includes("<cut>")) socket.end();
        return true;
      };
      const error = await failure(server.port);
      assert.ok(error instanceof LinkRefused, String(error));
      assert.deepEqual([error.status, error.reason, error.retryAfterMs], expected);
      await until(() => server.sockets.size === 0);
    }),
  );
});

test("a refusal after the upgrade carries its close code and its reason", async () => {
  await using server = await LinkServer.start({
    welcome: () => {
      throw new LinkRefused({ closeCode: CloseCode.alreadyConnected, reason: "this instance holds a tunnel already" });
    },
  });
  const error = await failure(server.port);
  assert.ok(error instanceof LinkRefused);
  assert.deepEqual([error.closeCode, error.reason], [4409, "this instance holds a tunnel already"]);
  assert.equal(((await server.refusal()) as LinkRefused).closeCode, 4409);
  await until(() => server.sockets.size === 0);
});

test("an error while a hello is answered closes that carrier and nothing else", async () => {
  await using server = await LinkServer.start({
    welcome: () => {
      throw new TypeError("a bug");
    },
  });
  assert.match((await failure(server.port)).message, /the peer closed with 1011: internal error/);
  assert.match((await server.refusal()).message, /a bug/);
});

test("a client that sends nothing, or another message first, is refused once", async () => {
  let verified = 0;
  const options = {
    helloTimeoutMs: 150,
    welcome: () => {
      verified++;
      return welcome();
    },
  };
  await using server = await LinkServer.start(options);
  const silent = await rawClient(server.port);
  silent.resume();
  assert.match((await server.refusal(0)).message, /\(4408\): no hello arrived in time/);
  // Late, while the close frame is on its way.
  silent.write(Buffer.concat([textFrame(HELLO, KEY), CLOSE]));
  await once(silent, "close");

  const rude = await rawClient(server.port, Buffer.concat([textFrame(welcome(), KEY), textFrame(HELLO, KEY)]));
  rude.resume();
  assert.match((await server.refusal(1)).message, /\(4400\): expected hello, not welcome/);
  rude.write(CLOSE);
  await once(rude, "close");

  const malformed = await rawClient(server.port, textFrame({ ...HELLO, version: 3 }, KEY));
  malformed.resume();
  assert.match((await server.refusal(2)).message, /bad hello message: version/);
  malformed.destroy();

  (await rawClient(server.port)).destroy();
  assert.match((await server.refusal(3)).message, /the connection was cut/);
  const leaving = await rawClient(server.port, CLOSE);
  leaving.resume();
  assert.match((await server.refusal(4)).message, /closed before its hello/);
  assert.equal(verified, 0);
  await until(() => server.sockets.size === 0);
});

test("from its welcome on a server sends pings as often as that says, however long its own interval is", async () => {
  await using server = await LinkServer.start({
    keepaliveMs: 3_600_000,
    welcome: () => welcome({ keepaliveMs: 20 }),
  });
  const client = await rawClient(server.port, textFrame(HELLO, KEY));
  let received = "";
  client.on("data", (chunk: Buffer) => {
    received += chunk.toString("latin1");
  });
  client.resume();
  await until(() => received.includes('{"type":"ping"}'), "a ping");
  client.destroy();
});

test("a hello is answered once, however often it comes", async () => {
  let verified = 0;
  await using server = await LinkServer.start({
    welcome: () => {
      verified++;
      throw new LinkRefused({ closeCode: CloseCode.forbidden, reason: "no" });
    },
  });
  const client = await rawClient(server.port, Buffer.concat([textFrame(HELLO, KEY), textFrame(HELLO, KEY)]));
  client.resume();
  await server.refusal();
  client.write(CLOSE);
  await once(client, "close");
  assert.equal(verified, 1);
});

test("payload that comes along with the handshake waits for the consumer, in order, and is bounded", async () => {
  await using server = await LinkServer.start();
  const payload = (text: string) => frame({ opcode: 2, payload: Buffer.from(text), mask: KEY });
  await rawClient(server.port, Buffer.concat([payload("before "), textFrame(HELLO, KEY), payload("behind")]));
  const inbox = new Inbox();
  const link = await server.link();
  link.start(inbox);
  assert.equal(inbox.bytes, 0, "not from inside start: its caller has nothing in hand yet");
  await until(() => inbox.text === "before behind");

  for (const message of [Buffer.alloc(60_000), Buffer.alloc(1)]) {
    const index = server.upgraded.length;
    const flood = await rawClient(server.port);
    const part = Buffer.concat(Array.from({ length: 100 }, () => frame({ opcode: 2, payload: message, mask: KEY })));
    for (let sent = 0; sent < 3; sent++) flood.write(part);
    flood.resume();
    assert.match((await server.refusal(index)).message, /too much payload before the handshake/);
    flood.destroy();
  }
});

test("payload and messages right behind the welcome, in one write with it, are not lost", async () => {
  await using server = await RawServer.start((socket, upgrade) => {
    const behind = [frame({ opcode: 2, payload: Buffer.from("early") }), textFrame({ type: "drain", retryAfterMs: 5 })];
    socket.write(Buffer.concat([Buffer.from(upgrade), textFrame(welcome()), ...behind]));
    socket.write(frame({ opcode: 2, payload: Buffer.from(" bird") }));
  });
  const { link } = await dial(server.port);
  const inbox = new Inbox();
  const messages: unknown[] = [];
  // An owner that takes its time.
  await new Promise((resolve) => setTimeout(resolve, 30));
  link.watch({ onControl: (message) => messages.push(message) });
  link.start(inbox);
  await until(() => inbox.text === "early bird" && messages.length === 1);
  assert.deepEqual(messages, [{ type: "drain", retryAfterMs: 5 }]);
});

test("a link that ended before its consumer came tells it so, once, behind the early payload", async () => {
  await using server = await RawServer.start((socket, upgrade) => {
    const close = frame({ opcode: 8, payload: Buffer.concat([Buffer.from([0x11, 0x64]), Buffer.from("going")]) });
    const early = frame({ opcode: 2, payload: Buffer.from("early") });
    socket.end(Buffer.concat([Buffer.from(upgrade), textFrame(welcome()), early, close]));
  });
  const { link } = await dial(server.port);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const inbox = new Inbox();
  link.start(inbox);
  const reason = await inbox.closed;
  assert.ok(reason instanceof LinkRefused);
  assert.deepEqual([reason.closeCode, reason.reason, inbox.text, inbox.late], [4452, "going", "early", 0]);
});

const ENDED = Buffer.concat([Buffer.from([0x03, 0xe8]), Buffer.from(LINK_ENDED)]);

test("a server that breaks the handshake and one that refuses have different errors", async () => {
  const table: [string, (upgrade: string) => Buffer, RegExp][] = [
    ["another message", () => textFrame({ type: "drain", retryAfterMs: 1 }), /answered hello with drain/],
    ["a malformed welcome", () => textFrame({ ...welcome(), keepaliveMs: 0 }), /bad welcome message: keepaliveMs/],
    ["garbage frames", () => Buffer.alloc(50, 0xff), /RSV|invalid/],
    ["an orderly close", () => frame({ opcode: 8, payload: ENDED }), /closed before its welcome/],
  ];
  for (const [name, answer, expected] of table) {
    await using server = await RawServer.start((socket, upgrade) => {
      socket.write(Buffer.concat([Buffer.from(upgrade), answer(upgrade)]));
    });
    const error = await failure(server.port, { timeoutMs: 3_000 });
    assert.match(error.message, expected, name);
    assert.ok(!(error instanceof LinkRefused), name);
    await until(() => server.sockets.size === 0);
  }
  await using other = await RawServer.start((socket, upgrade) => {
    socket.write(upgrade.replace(SUBPROTOCOL, "chat"));
  });
  assert.match((await failure(other.port)).message, /invalid subprotocol\): something in between has changed it/);
  await using noHttp = await RawServer.start((socket) => socket.write("SSH-2.0-OpenSSH\r\n"));
  assert.match((await failure(noHttp.port)).message, /\(waiting for the upgrade\)/);
  await using gone = await RawServer.start((socket) => socket.end());
  assert.match(
    (await failure(gone.port)).message,
    // It chose no ALPN.
    /^what answers there closed the connection once TLS stood, as konnectivity-server \(gRPC\) does: /,
  );
});
