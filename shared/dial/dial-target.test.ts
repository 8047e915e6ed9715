import assert from "node:assert/strict";
import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import { blackHoleTarget, freePort } from "../../e2e/harness/targets/absent.ts";
import { until } from "../basics/testing/wait.ts";
import { CulvertError } from "../outcomes.ts";
import { type Lookup, type LookupDone, lookupAll, TargetDial, type TargetDialOptions } from "./dial-target.ts";

interface Listener extends AsyncDisposable {
  readonly port: number;
  readonly accepted: Socket[];
}

async function listen(host: string, port = 0): Promise<Listener> {
  const accepted: Socket[] = [];
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => accepted.push(socket.on("error", () => {})));
  server.listen(port, host);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    accepted,
    async [Symbol.asyncDispose]() {
      for (const socket of accepted) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

const never: Lookup = () => assert.fail("a literal address needs no lookup");
const answers = (...addresses: string[]): Lookup => {
  const all: LookupAddress[] = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  return (_host, done) => process.nextTick(done, null, all);
};
const fails = (code: string): Lookup => {
  return (_host, done) => process.nextTick(done, Object.assign(new Error(`getaddrinfo ${code}`), { code }), []);
};

function start(host: string, port: number, options: Partial<TargetDialOptions> = {}) {
  return new TargetDial({ target: { host, port }, timeoutMs: 5_000, ...options });
}

async function refusal(promise: Promise<Socket>): Promise<CulvertError> {
  const error = await promise.then(
    (socket) => {
      socket.destroy();
      return assert.fail("the dial succeeded");
    },
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof CulvertError, String(error));
  return error;
}

test("a dial that is over leaves no timer behind", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  await using target = await listen("127.0.0.1");
  const before = timers();
  const dial = start("127.0.0.1", target.port, { timeoutMs: 3_600_000 });
  assert.equal(timers(), before + 1);
  (await dial.promise).destroy();
  await until(() => timers() <= before);
});

for (const host of ["127.0.0.1", "::1"]) {
  test(`${host} is dialled without a lookup and stays half-open`, async () => {
    await using target = await listen(host);
    const socket = await start(host, target.port, { lookup: never }).promise;
    assert.equal(socket.allowHalfOpen, true);
    assert.equal(socket.remoteAddress, host);
    assert.equal(socket.listenerCount("connect"), 0);
    assert.equal(socket.listenerCount("error"), 1, "the socket is never without an error listener");
    socket.destroy();
  });

  test(`localhost is reached when only ${host} listens`, async () => {
    await using target = await listen(host);
    const lookup = answers("::1", "127.0.0.1");
    const socket = await start("localhost", target.port, { lookup }).promise;
    assert.equal(socket.remoteAddress, host);
    socket.destroy();
  });
}

test("localhost is found by the system's own resolver", async () => {
  await using target = await listen("127.0.0.1");
  const socket = await start("localhost", target.port).promise;
  socket.destroy();
});

test("an address that swallows SYN does not keep the next one of the name waiting", async () => {
  await using hole = await blackHoleTarget();
  await using _target = await listen("::1", hole.port);
  const socket = await start("web.svc", hole.port, { lookup: answers("127.0.0.1", "::1"), timeoutMs: 1_500 }).promise;
  assert.equal(socket.remoteAddress, "::1");
  socket.destroy();
});

const refused = "refused the connection: check that something listens there";

test("a port where nobody listens is dial_refused, named as it was asked for", async () => {
  const port = await freePort();
  const error = await refusal(start("127.0.0.1", port).promise);
  assert.deepEqual([error.code, error.message], ["dial_refused", `127.0.0.1:${port} ${refused}`]);
  const six = await refusal(start("::1", port).promise);
  assert.deepEqual([six.code, six.message], ["dial_refused", `[::1]:${port} ${refused}`]);
});

test("a name all of whose addresses refuse is dial_refused", async () => {
  const port = await freePort();
  const error = await refusal(start("web.svc", port, { lookup: answers("127.0.0.1", "::1") }).promise);
  const causes = "(127.0.0.1: ECONNREFUSED, ::1: ECONNREFUSED)";
  assert.deepEqual([error.code, error.message], ["dial_refused", `web.svc:${port} ${refused} ${causes}`]);
});

test("a name that does not answer in time is dial_timeout, and each of its addresses is told apart", async () => {
  await using hole = await blackHoleTarget();
  const lookup = answers("::1", "127.0.0.1");
  const error = await refusal(start("web.svc", hole.port, { lookup, timeoutMs: 400 }).promise);
  assert.equal(error.code, "dial_timeout");
  assert.match(error.message, / \(::1: ECONNREFUSED, 127\.0\.0\.1: no answer\)$/);
});

test("a target that swallows SYN is dial_timeout, and no socket is left", async () => {
  await using hole = await blackHoleTarget();
  const before = handles();
  const error = await refusal(start("127.0.0.1", hole.port, { timeoutMs: 60.7 }).promise);
  assert.equal(error.code, "dial_timeout");
  assert.equal(
    error.message,
    `127.0.0.1:${hole.port} did not answer within 0.061 s: check firewalls and network policies on the way`,
  );
  await until(() => handles() === before);
});

test("a resolver that stays silent is dial_timeout and says that it was the name", async () => {
  const error = await refusal(start("web.svc", 443, { lookup: () => {}, timeoutMs: 30 }).promise);
  assert.deepEqual(
    [error.code, error.message],
    ["dial_timeout", 'the name "web.svc" did not resolve within 0.03 s: check the agent\'s DNS'],
  );
});

for (const [lookupCode, code, sentence] of [
  ["ENOTFOUND", "dial_name", /no such host: "web.svc" does not resolve at the agent/],
  ["EAI_AGAIN", "dial_name", /name server did not answer/],
  ["EAI_FAIL", "dial_name", /EAI_FAIL/],
  ["EMFILE", "agent_exhausted", /no file descriptor left/],
  ["EBUSY", "agent_exhausted", /^"web\.svc" cannot be dialled: .* too many other names: check its name servers$/],
] as const) {
  test(`a lookup that ends with ${lookupCode} is ${code}`, async () => {
    const error = await refusal(start("web.svc", 443, { lookup: fails(lookupCode) }).promise);
    assert.equal(error.code, code);
    assert.match(error.message, sentence);
  });
}

test("a name without addresses is dial_name", async () => {
  assert.equal((await refusal(start("web.svc", 443, { lookup: answers() }).promise)).code, "dial_name");
});

test("a broadcast address is dial_unreachable", async () => {
  const error = await refusal(start("255.255.255.255", 9).promise);
  assert.equal(error.code, "dial_unreachable");
  assert.match(error.message, /^255\.255\.255\.255:9 cannot be reached: /);
});

test("an address that the policy refuses is forbidden and is not dialled", async () => {
  await using target = await listen("127.0.0.1");
  const permit = (address: string, port: number) => `${address} ${port} is private`;
  const error = await refusal(start("127.0.0.1", target.port, { permit, lookup: never }).promise);
  assert.equal(error.code, "forbidden");
  assert.equal(error.message, `127.0.0.1:${target.port} may not be dialled: 127.0.0.1 ${target.port} is private`);
  assert.equal(target.accepted.length, 0);
});

test("a policy that fails for want of descriptors ends its dial as agent_exhausted, for names and addresses", async () => {
  const permit = (): never => {
    throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
  };
  for (const host of ["127.0.0.1", "web.svc"]) {
    const dialling = start(host, 80, { permit, lookup: answers("127.0.0.1") });
    assert.equal((await refusal(dialling.promise)).code, "agent_exhausted");
  }
});

test("of a name's addresses only those that the policy permits are dialled", async () => {
  await using four = await listen("127.0.0.1");
  await using six = await listen("::1", four.port);
  const permit = (address: string) => (address === "127.0.0.1" ? "not this one" : undefined);
  const socket = await start("web.svc", four.port, { permit, lookup: answers("127.0.0.1", "::1") }).promise;
  assert.equal(socket.remoteAddress, "::1");
  assert.equal(four.accepted.length, 0);
  socket.destroy();
  await until(() => six.accepted.length === 1);
  const refuseAll = start("web.svc", four.port, { permit: () => "none", lookup: answers("127.0.0.1", "::1") });
  assert.equal((await refusal(refuseAll.promise)).code, "forbidden");
});

test("cancel() ends a dial at each stage and leaves nothing", async () => {
  await using hole = await blackHoleTarget();
  const before = handles();
  const naming = start("web.svc", 443, { lookup: () => {} });
  naming.cancel();
  assert.equal((await refusal(naming.promise)).code, "caller_gone");
  for (const lookup of [answers("127.0.0.1"), answers("127.0.0.1", "::1")]) {
    const connecting = start("web.svc", hole.port, { lookup });
    await new Promise(setImmediate);
    connecting.cancel();
    connecting.cancel();
    assert.equal((await refusal(connecting.promise)).code, "caller_gone");
  }
  await until(() => handles() === before);
});

test("a late answer of the resolver after cancel() dials nothing", async () => {
  await using target = await listen("127.0.0.1");
  let answer = () => {};
  const lookup: Lookup = (_host, done) => {
    answer = () => done(null, [{ address: "127.0.0.1", family: 4 }]);
  };
  const late = start("web.svc", target.port, { lookup });
  late.cancel();
  await refusal(late.promise);
  const before = handles();
  answer();
  assert.equal(handles(), before);
});

test("cancel() after success leaves the socket to its owner", async () => {
  await using target = await listen("127.0.0.1");
  const done = start("127.0.0.1", target.port);
  const socket = await done.promise;
  done.cancel();
  assert.equal(socket.destroyed, false);
  socket.destroy();
});

function handles(): number {
  return process.getActiveResourcesInfo().filter((name) => /TCPSocket|Timeout/.test(name)).length;
}

test("the system's resolver knows localhost", async () => {
  const addresses = await new Promise<string[]>((resolve, reject) => {
    const onFound: LookupDone = (error, all) => (error ? reject(error) : resolve(all.map(({ address }) => address)));
    lookupAll("localhost", onFound, 30_000);
  });
  assert.ok(addresses.some((address) => address === "127.0.0.1" || address === "::1"));
});
