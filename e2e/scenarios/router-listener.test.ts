import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import { readAll, readSome, TestBackend, TestRouter } from "../../router/testing/router.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { UNRECOGNIZED_NAME_ALERT } from "../../shared/listen/client-hello.ts";
import { readProxyHeader } from "../../shared/listen/preface.ts";
import { helloFor, helloMessage, inRecords } from "../../shared/listen/testing/client-hello.ts";
import { NAMES_OF_TARGETS } from "../../shared/names/lookup.ts";

const BLUE = helloFor("blue.example");

test("a connection goes to the backend of its name, bytes and ends both ways, and nothing is added", async () => {
  await using blue = await new TestBackend().start();
  await using green = await new TestBackend().start();
  await using test = await new TestRouter().start([
    { sni: ["blue.example"], to: [blue.address] },
    { sni: ["*.green.example"], to: [green.address] },
  ]);
  const [toBlue, toGreen] = [await test.dial(), await test.dial()];
  toBlue.write(BLUE);
  toGreen.write(helloFor("One.Green.Example."));
  assert.deepEqual(await readSome(toBlue, BLUE.length), BLUE);
  toBlue.write("more");
  assert.equal(String(await readSome(toBlue, 4)), "more");
  toBlue.end("last");
  assert.equal(String((await readAll(toBlue)).bytes), "last");
  await until(() => green.bytes.equals(helloFor("One.Green.Example.")));
  assert.deepEqual(blue.bytes, Buffer.concat([BLUE, Buffer.from("morelast")]));

  await until(() => test.logged(/^connection closed$/).length === 1);
  const { route, serverName, backend, bytesUp, bytesDown, endedBy, reason } =
    test.logged(/^connection closed$/)[0] ?? assert.fail();
  assert.deepEqual(
    { route, serverName, backend, bytesUp, bytesDown, endedBy, reason },
    {
      ...{ route: "blue.example", serverName: "blue.example", backend: blue.address, reason: undefined },
      ...{ bytesUp: BLUE.length + 8, bytesDown: BLUE.length + 8, endedBy: "caller" },
    },
  );
  assert.equal(await test.metric('culvert_router_connections_total{route="blue.example"}'), 1);
  assert.equal(await test.metric('culvert_router_bytes_total{route="blue.example",direction="up"}'), BLUE.length + 8);
});

test("a ClientHello in segments of one byte and records of one byte arrives as it was sent", async () => {
  await using backend = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address] }]);
  const client = await test.dial();
  client.setNoDelay(true);
  const hello = inRecords(helloMessage({ names: ["blue.example"] }), 1);
  for (const byte of hello) await new Promise((resolve) => client.write(Buffer.from([byte]), resolve));
  assert.deepEqual(await readSome(client, hello.length), hello);
});

test("PROXY v2 stands in front where the route wants it: the client's address, and where it came to", async () => {
  await using backend = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address], sendProxy: "v2" }]);
  const client = await test.dial();
  client.write(BLUE);
  await until(() => backend.bytes.length >= 28 + BLUE.length);
  const reading = readProxyHeader(backend.bytes);
  assert.ok(reading.state === "read");
  assert.deepEqual(reading.connection, {
    source: { address: "127.0.0.1", port: client.localPort },
    destination: { address: "127.0.0.1", port: client.remotePort },
  });
  assert.deepEqual(backend.bytes.subarray(reading.bytesUsed), BLUE);
});

test("an unknown name, no name and an unreadable one get the alert, bounded log lines and a count", async () => {
  await using backend = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address] }]);
  for (const [bytes, reason] of [
    [helloFor("__proto__"), "unknown_name"],
    [helloFor("constructor"), "unknown_name"],
    [helloFor("a.blue.example"), "unknown_name"],
    [helloFor(undefined), "no_name"],
    [helloFor("10.0.0.1"), "unreadable"],
    [helloFor("blue.example\0"), "unreadable"],
    [Buffer.from("GET / HTTP/1.1\r\n\r\n"), "unreadable"],
    // Bytes behind it are read and dropped: a reset would destroy the alert on its way.
    [Buffer.concat([helloFor("nobody.example"), Buffer.alloc(300_000)]), "unknown_name"],
  ] as const) {
    const before = await test.metric(`culvert_router_connections_refused_total{reason="${reason}"}`);
    const client = await test.dial();
    client.write(bytes);
    assert.deepEqual(await readAll(client), { bytes: UNRECOGNIZED_NAME_ALERT, error: undefined });
    assert.equal(await test.metric(`culvert_router_connections_refused_total{reason="${reason}"}`), before + 1);
  }
  for (let count = 0; count < 20; count++) {
    const client = await test.dial();
    client.write(helloFor("nobody.example"));
    await readAll(client);
  }
  const logged = test.logged(/no route has its server name/).filter(({ level }) => level === "info");
  assert.equal(logged.length, 10);
  assert.equal(backend.accepted, 0);
});

test("a backend that cannot be reached is passed over for the next one, and tried last for a while", async () => {
  await using dead = await new TestBackend().start();
  await using good = await new TestBackend().start();
  const to = [dead.address, good.address];
  await dead.stop();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to }], { backendRetryMs: 60_000 });
  for (let count = 0; count < 3; count++) {
    const client = await test.dial();
    client.write(BLUE);
    assert.deepEqual(await readSome(client, BLUE.length), BLUE);
  }
  assert.equal(good.accepted, 3);
  assert.equal(test.logged(/^backend not reached$/).length, 1);
  const { backend, code, errno } = test.logged(/^backend not reached$/)[0] ?? assert.fail();
  assert.deepEqual({ backend, code, errno }, { backend: dead.address, code: "dial_refused", errno: "ECONNREFUSED" });
  const { backends } = JSON.parse((await test.get("admin", "/status")).text);
  assert.deepEqual(backends, [
    { backend: dead.address, state: "avoided", connections: 0 },
    { backend: good.address, state: "healthy", connections: 3 },
  ]);

  await good.stop();
  const client = await test.dial();
  client.write(BLUE);
  const { bytes, error } = await readAll(client);
  assert.deepEqual([bytes.length, error], [0, "ECONNRESET"]);
  assert.equal(await test.metric('culvert_router_connections_refused_total{reason="unreachable"}'), 1);
});

test("connections are spread by how many each backend has", async () => {
  await using one = await new TestBackend().start();
  await using two = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [one.address, two.address] }]);
  for (let count = 0; count < 6; count++) (await test.dial()).write(BLUE);
  await until(() => one.accepted === 3 && two.accepted === 3);
  for (const socket of one.sockets) socket.resetAndDestroy();
  await until(async () => (await test.metric("culvert_router_connections")) === 3);
  for (let count = 0; count < 3; count++) (await test.dial()).write(BLUE);
  await until(() => one.accepted === 6);
  assert.equal(two.accepted, 3);
});

test("a ClientHello that does not come to its end is cut", async () => {
  await using test = await new TestRouter().start([], { helloTimeoutMs: 30 });
  const slow = await test.dial();
  slow.write(BLUE.subarray(0, 50));
  assert.equal((await readAll(slow)).error, "ECONNRESET");
  assert.equal(test.logged(/--hello-timeout/).length, 1);
});

test("a probe that says nothing is no line in the log", async () => {
  await using test = await new TestRouter().start([]);
  (await test.dial()).end();
  (await test.dial()).resetAndDestroy();
  await until(async () => (await test.metric('culvert_router_connections_refused_total{reason="gone"}')) === 2);
  assert.deepEqual(
    test.lines.filter(({ level, msg }) => level !== "debug" && msg.includes("refused")).map(({ msg }) => msg),
    ["there are no routes yet: every connection is refused"],
  );
});

test("of too many unfinished ClientHellos the oldest is dropped, and so is of too many young connections", async () => {
  await using backend = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address] }], {
    maxHellos: 2,
    maxConnections: 3,
  });
  const silent = [await test.dial(), await test.dial()];
  await until(async () => (await test.metric("culvert_router_hellos")) === 2);
  const client = await test.dial();
  client.write(BLUE);
  assert.equal((await readAll(silent[0] ?? assert.fail())).error, "ECONNRESET");
  assert.deepEqual(await readSome(client, BLUE.length), BLUE);
  assert.equal(await test.metric('culvert_router_connections_refused_total{reason="crowded"}'), 1);

  const another = await test.dial();
  another.write(BLUE);
  assert.deepEqual(await readSome(another, BLUE.length), BLUE);
  const newcomer = await test.dial();
  newcomer.write(BLUE);
  assert.equal((await readAll(silent[1] ?? assert.fail())).error, "ECONNRESET");
  assert.deepEqual(await readSome(newcomer, BLUE.length), BLUE);
  assert.equal(await test.metric('culvert_router_connections_refused_total{reason="full"}'), 1);
});

test("changed routes are taken up, broken ones leave the old in use and say so, and open connections live on", async () => {
  await using one = await new TestBackend().start();
  await using two = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [one.address] }]);
  const bystander = await test.dial();
  bystander.write(BLUE);
  await readSome(bystander, BLUE.length);

  test.write("sni: [blue.example]\nto: [nowhere]\n");
  await until(() => test.logged(/^a route file cannot be used/).length === 1);
  const reason = `to[0] the target "nowhere" has no port: write host:port, for example 10.0.0.1:10250.`;
  assert.equal(test.logged(/^a route file cannot be used/)[0]?.["reason"], reason);
  const ready = await test.get("admin", "/readyz?verbose");
  assert.equal(ready.status, 200);
  assert.ok(ready.text.includes(`[!]routes: 1 in 1 file; not in use: ${test.file}: ${reason}`), ready.text);
  assert.equal(await test.metric("culvert_router_route_faults"), 1);
  const old = await test.dial();
  old.write(BLUE);
  await until(() => one.accepted === 2);

  test.write([{ sni: ["blue.example"], to: [two.address] }]);
  await until(async () => (await test.metric('culvert_router_route_reads_total{result="ok"}')) === 1);
  assert.equal(await test.metric("culvert_router_route_faults"), 0);
  const young = await test.dial();
  young.write(BLUE);
  await until(() => two.accepted === 1);
  bystander.write("still here");
  assert.equal(String(await readSome(bystander, 10)), "still here");
});

test("a router that closes takes nothing new, waits for what is open, and ends what is not over in time as a failure", async () => {
  await using backend = await new TestBackend().start();
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address] }], {
    drainTimeoutMs: 60_000,
  });
  const [open, unfinished] = [await test.dial(), await test.dial()];
  open.write(BLUE);
  await readSome(open, BLUE.length);
  await until(async () => (await test.metric("culvert_router_hellos")) === 1);
  const closed = test.router.close();
  assert.deepEqual((await readAll(unfinished)).bytes.length, 0);
  await assert.rejects(test.dial(), { code: "ECONNREFUSED" });
  assert.equal((await test.get("health", "/readyz")).status, 503);
  open.write("last");
  assert.equal(String(await readSome(open, 4)), "last");
  open.end();
  await closed;

  await using hasty = await new TestRouter().start([{ sni: ["blue.example"], to: [backend.address] }], {
    drainTimeoutMs: 10,
  });
  const cut = await hasty.dial();
  cut.write(BLUE);
  await readSome(cut, BLUE.length);
  await hasty.router.close();
  assert.equal((await readAll(cut)).error, "ECONNRESET");
  await until(() => backend.sockets.size === 0);
});

test("a router at its limit of open files logs it and refuses new connections, until there is room again", async () => {
  await using backend = await new TestBackend().start();
  let open = 100;
  await using test = await new TestRouter().start(
    [{ sni: ["blue.example"], to: [backend.address] }],
    {},
    { limit: 1_024, count: async () => open },
  );
  const readyz = async () => {
    const { status, text } = await test.get("health", "/readyz?verbose");
    return `${status} ${/^.*file-descriptors.*$/m.exec(text)?.[0]}`;
  };
  await until(async () => (await readyz()) === "200 [+]file-descriptors ok: 100 of 1024 in use");
  const there = await test.dial();
  there.write(BLUE);
  await readSome(there, BLUE.length);
  const early = await test.dial();
  await until(async () => (await test.metric("culvert_router_hellos")) === 1);

  open = 1_000;
  await until(async () => (await readyz()) === "503 [-]file-descriptors failed: 1000 of 1024 in use");
  // The reset may come before Node tells of the connection.
  const late = await test.dial().then(readAll, ({ code }: NodeJS.ErrnoException) => ({ error: code }));
  assert.equal(late.error, "ECONNRESET");
  early.write(BLUE); // a backend would take one more
  const [reset] = await once(early, "error", { signal: AbortSignal.timeout(5_000) });
  assert.equal(reset.code, "ECONNRESET");
  assert.equal(backend.accepted, 1);
  there.write("still");
  assert.equal(String(await readSome(there, 5)), "still");
  assert.equal(await test.metric('culvert_router_connections_refused_total{reason="no_files"}'), 2);
  assert.equal(await test.metric("culvert_router_files_used_up_total"), 1);
  const [line] = test.logged(/^connection dropped: file descriptors are nearly used up$/);
  assert.match(String(line?.["reason"]), /^this router has 1000 of its 1024 files open: raise its limit/);
  assert.equal(test.logged(/^file descriptors are nearly used up/).length, 1);

  open = 100;
  await until(async () => (await readyz()).startsWith("200 "));
  const next = await test.dial();
  next.write(BLUE);
  assert.deepEqual(await readSome(next, BLUE.length), BLUE);
});

/** From now on each name is looked up in vain; the names that were. */
function failLookups(t: TestContext, code: string): string[] {
  const asked: string[] = [];
  t.mock.method(NAMES_OF_TARGETS, "find", async (host: string) => {
    asked.push(host);
    throw Object.assign(new Error(`getaddrinfo ${code}`), { code, syscall: "getaddrinfo" });
  });
  return asked;
}

test("a router that has no file descriptor to dial with says so, and blames no backend", async (t) => {
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: ["one.test:1", "two.test:1"] }]);
  const client = await test.dial();
  const asked = failLookups(t, "EMFILE");
  client.write(BLUE);
  assert.equal((await readAll(client)).error, "ECONNRESET");
  assert.equal(asked.length, 1, "another backend takes a descriptor, too");
  const [line] = test.logged(/^connection dropped: file descriptors are nearly used up$/);
  assert.match(String(line?.["reason"]), /^this router has no file descriptor left: raise its limit/);
  assert.deepEqual(test.logged(/backend/), []);
  assert.equal(await test.metric('culvert_router_connections_refused_total{reason="no_files"}'), 1);
  assert.equal(await test.metric('culvert_router_dial_failures_total{route="blue.example"}'), 0);
  const { backends } = JSON.parse((await test.get("admin", "/status")).text);
  assert.deepEqual(
    backends.map(({ state, connections }: { state: string; connections: number }) => [state, connections]),
    [
      ["untried", 0],
      ["untried", 0],
    ],
  );
});

test("another shortage of this process is logged by its errno, and keeps no backend from being tried", async (t) => {
  await using test = await new TestRouter().start([{ sni: ["blue.example"], to: ["one.test:1"] }]);
  const client = await test.dial();
  failLookups(t, "ENOMEM");
  client.write(BLUE);
  await readAll(client);
  const [{ code, errno } = assert.fail()] = test.logged(/^backend not reached$/);
  assert.deepEqual({ code, errno }, { code: undefined, errno: "ENOMEM" });
  const { backends } = JSON.parse((await test.get("admin", "/status")).text);
  assert.deepEqual(backends, [{ backend: "one.test:1", state: "untried", connections: 0 }]);
});

test("an IPv4 client of a listener for both kinds is an IPv4 address in the log", async () => {
  await using backend = await new TestBackend().start();
  const routes = [{ sni: ["blue.example"], to: [backend.address] }];
  await using test = await new TestRouter().start(routes, { bindAddress: "" });
  const [known, unknown] = [await test.dial(), await test.dial()];
  const shown = [known, unknown].map(({ localPort }) => `127.0.0.1:${localPort}`);
  known.write(BLUE);
  await readSome(known, BLUE.length);
  known.end();
  await readAll(known);
  unknown.write(helloFor("nobody.example"));
  await readAll(unknown);
  await until(() => test.logged(/^connection closed$/).length === 1);
  const remotes = [...test.logged(/^connection closed$/), ...test.logged(/no route has its server name/)].map(
    ({ remote }) => remote,
  );
  assert.deepEqual(remotes, shown);
});

test("wrong routes, and none where they should be, fail the start with all their faults", async () => {
  await using test = new TestRouter();
  const routes = [
    { sni: ["blue.example"], to: ["10.0.0.1:1"] },
    { sni: ["blue.example"], to: [] },
  ];
  await assert.rejects(test.start(routes), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.deepEqual(error.problems, [`--routes: ${test.file}: document 2: to is empty: name at least one backend.`]);
    return true;
  });
  await assert.rejects(test.start([], { routes: "/nowhere/at/all" }), /\/nowhere\/at\/all: it does not exist/);
});

test("an address that this host does not have fails with the flag at fault", async () => {
  for (const [flag, change] of [
    ["--bind-address", { bindAddress: "192.0.2.1" }],
    ["--health-bind-address", { healthBindAddress: "192.0.2.1" }],
    ["--admin-bind-address", { adminBindAddress: "192.0.2.1" }],
  ] as const) {
    await using test = new TestRouter();
    await assert.rejects(test.start([], change), { message: new RegExp(`does not have the address.*\\(${flag}\\)`) });
  }
});
