import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { CONNECT, ESTABLISHED, start } from "./testing/caller.ts";

const ODDITIES: ReadonlyArray<readonly [sentence: string, request: string, answer: RegExp]> = [
  [
    "GET is 405",
    "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    /^HTTP\/1\.1 405 (only CONNECT .*--agent-port)\r\nAllow: CONNECT\r\nProxy-Status: culvert; error=http_request_error; details="\1"\r\n/,
  ],
  [
    "GET of a whole URL, as curl --proxy sends it, is 405 and says what to add",
    "GET http://10.0.0.1/ HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n",
    /^HTTP\/1\.1 405 only CONNECT .*; curl: add --proxytunnel\r\nAllow: CONNECT\r\nProxy-Status: /,
  ],
  ["POST with a body is 405", `POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello`, /^HTTP\/1\.1 405 /],
  [
    "a request to upgrade is 405",
    "GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    /^HTTP\/1\.1 405 /,
  ],
  [
    "Expect on another method is 405, without 100",
    "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    /^HTTP\/1\.1 405 /,
  ],
  ["a strange Expect is 405", "GET / HTTP/1.1\r\nExpect: wonders\r\n\r\n", /^HTTP\/1\.1 405 /],
  ["CONNECT in HTTP/1.0 is a CONNECT", "CONNECT a:1 HTTP/1.0\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["CONNECT in HTTP/2.0 is 400", "CONNECT a:1 HTTP/2.0\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["CONNECT in HTTP/0.9 is 400", "CONNECT a:1 HTTP/0.9\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["CONNECT without Host is a CONNECT", "CONNECT a:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["Host is not compared", "CONNECT a:1 HTTP/1.1\r\nHost: b:2\r\n\r\n", /^HTTP\/1\.1 200 /],
  [
    "Expect and Upgrade on CONNECT mean nothing",
    "CONNECT a:1 HTTP/1.1\r\nExpect: 100-continue\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    /^HTTP\/1\.1 200 /,
  ],
  ["an IPv6 target is a CONNECT", "CONNECT [::1]:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 200 /],
  ["no port is 400", "CONNECT a HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["port 0 is 400", "CONNECT a:0 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["user information is 400", "CONNECT u@a:1 HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["a path is 400", "CONNECT /a HTTP/1.1\r\n\r\n", /^HTTP\/1\.1 400 /],
  ["a target beyond 255 bytes is 400", `CONNECT ${"a".repeat(300)}:1 HTTP/1.1\r\n\r\n`, /^HTTP\/1\.1 400 /],
  ["garbage is 400", "\x16\x03\x01\x02\x00\x01\x00garbage\r\n\r\n", /^HTTP\/1\.1 400 /],
  [
    "a header beyond the limit is 431",
    `CONNECT a:1 HTTP/1.1\r\nX: ${"y".repeat(17 * 1024)}\r\n\r\n`,
    /^HTTP\/1\.1 431 [\s\S]*\r\nProxy-Status: culvert; error=http_request_error/,
  ],
  [
    "a usual CONNECT with two Hosts is 400",
    "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nHost: a:1\r\n\r\n",
    /^HTTP\/1\.1 400 .*two Host lines/,
  ],
  [
    "so is one that Node's parser reads",
    "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nX: y\r\nhOST:b:1\r\n\r\n",
    /^HTTP\/1\.1 400 .*two Host lines/,
  ],
  [
    "a CONNECT with two credentials is 400: whoever stands in front may have read the other one",
    "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Bearer a\r\nproxy-authorization: Bearer b\r\n\r\n",
    /^HTTP\/1\.1 400 .*two Proxy-Authorization lines/,
  ],
  ["a broken header line is 400", "CONNECT a:1 HTTP/1.1\r\nbroken\r\n\r\n", /^HTTP\/1\.1 400 /],
];

for (const [sentence, request, answer] of ODDITIES) {
  test(sentence, async () => {
    await using world = await start([fakeAgent({ onTarget: (stream) => stream.resume() })]);
    const caller = world.call();
    const text = await caller.ask(request);
    assert.match(text, answer);
    assert.equal(text.match(/HTTP\/1\.1 \d/g)?.length, 1, "one answer");
    if (!text.startsWith(ESTABLISHED)) await until(() => caller.ended);
  });
}

test("a CONNECT behind another request gets nothing but that request's answer", async () => {
  const agent = fakeAgent();
  await using world = await start([agent]);
  const caller = world.call();
  const text = await caller.ask(`GET / HTTP/1.1\r\nHost: x\r\n\r\n${CONNECT}`);
  await until(() => caller.ended);
  assert.match(text, /^HTTP\/1\.1 405 /);
  assert.equal(caller.text.match(/HTTP\/1\.1 \d/g)?.length, 1);
  assert.equal(agent.streams.length, 0);
});

test("a header that does not come in time is 408, even when bytes keep trickling", async () => {
  await using world = await start([], { headerTimeoutMs: 100 });
  const caller = world.call();
  const trickle = setInterval(() => caller.socket.write("X"), 10);
  assert.match(await caller.ask("CONNECT a:1 HTTP/1.1\r\n"), /^HTTP\/1\.1 408 /);
  clearInterval(trickle);
  await until(() => caller.ended);
});

test("nothing of a connection is left after its end", async () => {
  await using world = await start([fakeAgent({ onTarget: (stream) => stream.pipe(stream) })]);
  const callers = [world.call(), world.call(), world.call()];
  await callers[0]?.ask(CONNECT);
  await callers[1]?.ask("GET / HTTP/1.1\r\n\r\n");
  await until(() => callers[1]?.ended === true);
  for (const caller of callers) caller.socket.destroy();
  await world.callers.empty(60_000);
});

test("silent callers keep no other out: one too many drops the oldest of them", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent], { maxWaitingConnections: 5 });
  const talking = world.call();
  assert.equal(await talking.ask(CONNECT), ESTABLISHED);
  const silent = Array.from({ length: 20 }, () => world.call());
  await until(() => world.dropped.count === 15);
  await until(() => silent.filter(({ ended }) => ended).length === 15);
  assert.equal(await world.call().ask(CONNECT), ESTABLISHED);
  assert.equal(talking.ended, false, "a caller with a request is none of them");
});
