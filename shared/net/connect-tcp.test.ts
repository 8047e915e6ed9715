import assert from "node:assert/strict";
import { test } from "node:test";
import { blackHoleTarget, freePort } from "../../e2e/harness/targets/absent.ts";
import { TARGETS } from "../../e2e/harness/targets.ts";
import { until } from "../basics/testing/wait.ts";
import { ConnectAborted, connectTcp } from "./connect-tcp.ts";

const never = new AbortController().signal;
const sockets = (): number => process.getActiveResourcesInfo().filter((kind) => kind.startsWith("TCPSocket")).length;

test("a name and an address are connected to, and the socket has an error listener", async () => {
  await using echo = await TARGETS.echo();
  for (const host of ["localhost", "127.0.0.1"]) {
    const socket = await connectTcp({ host, port: echo.port }, never);
    assert.equal(socket.remotePort, echo.port);
    assert.equal(socket.listenerCount("error"), 1);
    socket.destroy();
  }
});

test("a refusal and an unknown name have the errors of the kernel and of the resolver", async () => {
  const port = await freePort();
  await assert.rejects(connectTcp({ host: "127.0.0.1", port }, never), { code: "ECONNREFUSED" });
  await assert.rejects(connectTcp({ host: "nobody.invalid", port }, never), { syscall: "getaddrinfo" });
});

test("an abort tells a name that has not resolved from an address that does not answer, and leaves nothing", async () => {
  await using hole = await blackHoleTarget();
  const before = sockets();
  const abort = new AbortController();
  const aborted = async (host: string) => {
    const error = await connectTcp({ host, port: hole.port }, abort.signal).catch((reason: unknown) => reason);
    assert.ok(error instanceof ConnectAborted);
    return [error.isResolved, error.causes];
  };
  const silent = aborted("127.0.0.1");
  await until(() => sockets() > before);
  const name = aborted("localhost");
  abort.abort();
  assert.deepEqual(await silent, [true, ""]);
  assert.deepEqual(await name, [false, "its name did not resolve"]);
  assert.deepEqual(await aborted("127.0.0.1"), [true, ""]);
  await until(() => sockets() === before, "the end of the attempts");
});

test("an abort in the moment of the connection leaves no connection behind", async () => {
  await using echo = await TARGETS.echo();
  for (let attempt = 0; attempt < 20; attempt++) {
    const abort = new AbortController();
    const connecting = connectTcp({ host: "127.0.0.1", port: echo.port }, abort.signal);
    setImmediate(() => abort.abort());
    await connecting.then(
      (socket) => socket.destroy(),
      (error) => assert.ok(error instanceof ConnectAborted),
    );
  }
  await until(() => echo.open === 0);
});
