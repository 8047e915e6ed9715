import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { blackHoleTarget } from "../../e2e/harness/targets/absent.ts";
import { until } from "../basics/testing/wait.ts";
import { dialTcp, networkFault } from "./dial-tcp.ts";
import type { RouteFaultCode } from "./proxy-route.ts";

test("a connection is opened, with Nagle's delay off", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const socket = await dialTcp({ host: "localhost", port }, "server", AbortSignal.timeout(30_000));
  assert.equal(socket.remotePort, port);
  socket.destroy();
});

test("an abort is a timeout, whenever it comes", async () => {
  const abort = new AbortController();
  const dialling = dialTcp({ host: "127.0.0.1", port: 443 }, "server", abort.signal);
  abort.abort();
  await assert.rejects(dialling, { fault: "timeout", at: "server", message: /^server did not answer: / });
  const late = dialTcp({ host: "127.0.0.1", port: 443 }, "server", abort.signal);
  await assert.rejects(late, { fault: "timeout" });
});

test("an abort leaves no connection behind that is still being made", async () => {
  await using silent = await blackHoleTarget();
  const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;
  const before = sockets();
  const abort = new AbortController();
  const dialling = dialTcp({ host: "127.0.0.1", port: silent.port }, "server", abort.signal);
  await until(() => sockets() > before);
  abort.abort();
  await assert.rejects(dialling, { fault: "timeout" });
  await until(() => sockets() === before, "the end of the attempt");
});

test("an abort before the name has resolved is the resolver's", async () => {
  const dialling = dialTcp({ host: "localhost", port: 443 }, "server", AbortSignal.abort());
  await assert.rejects(dialling, { fault: "dns", at: "server", message: /^the name "localhost" of server did not/ });
});

const ROWS: readonly [code: string, fault: RouteFaultCode, sentence: RegExp][] = [
  ["ENOTFOUND", "dns", /^the name "proxy\.corp" of http:\/\/proxy\.corp:1 does not resolve/],
  ["EAI_AGAIN", "dns", /name server did not answer$/],
  ["ECONNREFUSED", "refused", /^http:\/\/proxy\.corp:1 refused the connection/],
  ["ETIMEDOUT", "timeout", /did not answer/],
  ["ECONNRESET", "closed", /reset/],
  ["EHOSTUNREACH", "unreachable", /routes and firewall$/],
  ["ENETUNREACH", "unreachable", /routes and firewall$/],
  ["EPERM", "unreachable", /firewall does not permit it$/],
  ["EMFILE", "unreachable", /cannot be reached \(EMFILE\)$/],
];

for (const [code, fault, sentence] of ROWS) {
  test(`${code} is ${fault}`, () => {
    const error = networkFault(Object.assign(new Error("words"), { code }), "proxy.corp", "http://proxy.corp:1");
    assert.equal(error.fault, fault);
    assert.match(error.message, sentence);
  });
}

test("of several addresses, each one's cause is told", () => {
  const attempts = ["ENETUNREACH", "ECONNREFUSED"].map((code) => Object.assign(new Error("words"), { code }));
  const causes = "::1: ENETUNREACH, 127.0.0.1: ECONNREFUSED";
  const error = Object.assign(new AggregateError(attempts, causes), { code: "ECONNREFUSED" });
  const { fault, message } = networkFault(error, "host", "server");
  assert.equal(fault, "refused");
  assert.equal(message, `server refused the connection: check that something listens there (${causes})`);
});
