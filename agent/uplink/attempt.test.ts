import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { until } from "../../shared/basics/testing/wait.ts";
import { DialFault, isUnknownIssuer } from "../../shared/faults/faults.ts";
import type { Passage } from "../../shared/link/dial.ts";
import type { InnerPipe } from "../../shared/link/inner-pipe.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { HELLO, LinkServer, testCertificate, welcome } from "../../shared/link/testing/ends.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { AgentOptions } from "../context/options.ts";
import { contextOf, optionsOf } from "../testing/context.ts";
import { attempt, type DialContext } from "./attempt.ts";
import type { Credentials } from "./credentials.ts";
import { type DialTerms, reportToRoute, sendHello } from "./open-link.ts";
import { Path } from "./path.ts";

interface Change {
  readonly credentials: DialContext["credentials"];
  readonly options?: Partial<AgentOptions>;
  readonly route?: DialContext["route"];
}

/** The context of a dial to this server. */
function dialTo(server: LinkServer, { options = {}, ...change }: Change): DialContext {
  const open = async () => ({ socket: net.connect(server.port, server.host) });
  return {
    ...contextOf({ options: optionsOf({ handshakeTimeoutMs: 5_000, ...options }), retry: { baseMs: 10, capMs: 20 } }),
    server: { host: "localhost", port: server.port, path: "/" },
    route: { open, worked: () => undefined, failed: () => {} },
    hello: HELLO,
    path: new Path({ maxCarrierAgeMs: 0 }),
    ...change,
  };
}

test("who stands at the end of TLS is remembered until somebody else stands there", async (t) => {
  const server = await LinkServer.start();
  t.after(() => server[Symbol.asyncDispose]());
  const { ca } = await testCertificate();
  let credentials: Credentials = { ca: (await Authority.create("another")).cert };
  const context = dialTo(server, { credentials: { current: () => credentials } });
  const { path } = context;
  const owner = { onClosed: () => {} };
  const attempted = () => attempt(context, owner as never, new AbortController().signal);
  await assert.rejects(attempted(), isUnknownIssuer);
  assert.equal(path.intercepted, true);
  credentials = { ca };
  const { session } = await attempted();
  assert.equal(path.intercepted, false);
  session.destroy(new Error("the test is over"));
});

const TIMEOUT_MS = 1_500;
const SLOW_MS = 300;

test("where somebody may stand between, the look at the server and the dial have one deadline together", async (t) => {
  const server = await LinkServer.start();
  t.after(() => server[Symbol.asyncDispose]());
  const { ca, leaf } = await testCertificate();
  let opened = 0;
  const open = async (signal: AbortSignal): Promise<Passage> => {
    opened++;
    if (opened === 2) {
      await once(signal, "abort");
      throw signal.reason;
    }
    await pause(SLOW_MS);
    return { socket: net.connect(server.port, server.host) };
  };
  const context = dialTo(server, {
    route: { open, worked: () => undefined, failed: () => {} },
    credentials: { current: () => ({ ca, ...leaf, outerCa: [ca] }) },
    options: { handshakeTimeoutMs: TIMEOUT_MS },
  });
  const late = await attempt(context, {} as never, new AbortController().signal).then(
    () => undefined,
    (error: Error) => error.message,
  );
  const [, seconds] = /no tunnel within ([\d.]+) s/.exec(late ?? "") ?? [];
  assert.equal(opened, 2);
  assert.ok(Number(seconds) * 1_000 < TIMEOUT_MS, late);
});

test("a carrier of a resumed link pings as often as the server's welcome asked for", async (t) => {
  const key = LinkKey.random();
  const server = await LinkServer.start({
    welcome: ({ resume }) =>
      resume === undefined
        ? welcome({ key: key.text, keepaliveMs: 50, graceMs: 5_000 })
        : { type: "resumed", version: 1, received: 0, proof: key.answer(resume, 0) },
  });
  t.after(() => server[Symbol.asyncDispose]());
  const { ca } = await testCertificate();
  const context = dialTo(server, { credentials: { current: () => ({ ca }) }, options: { innerTls: "never" } });
  const owner = { onClosed: () => {}, onSuspended: () => {}, onResumed: () => {}, onResumeFailed: () => {} };
  const { session } = await attempt(context, owner as never, new AbortController().signal);
  server.upgraded[0]?.destroy();
  await until(() => server.upgraded[1] !== undefined);
  const read = () => server.upgraded[1]?.bytesRead ?? 0;
  await until(() => server.results[1] !== undefined);
  const before = read();
  await until(() => read() > before + 200);
  session.destroy(new Error("the test is over"));
});

test("a planned carrier may come later than --handshake-timeout, because the old one goes on meanwhile", async (t) => {
  const key = LinkKey.random();
  const server = await LinkServer.start({
    welcome: ({ resume }) =>
      resume === undefined
        ? welcome({ key: key.text, graceMs: 30_000 })
        : { type: "resumed", version: 1, received: 0, proof: key.answer(resume, 0) },
  });
  t.after(() => server[Symbol.asyncDispose]());
  const { ca } = await testCertificate();
  let opened = 0;
  const open = async (): Promise<Passage> => {
    opened++;
    if (opened === 2) await pause(TIMEOUT_MS + SLOW_MS);
    return { socket: net.connect(server.port, server.host) };
  };
  const context = dialTo(server, {
    route: { open, worked: () => undefined, failed: () => {} },
    credentials: { current: () => ({ ca }) },
    options: { innerTls: "never", handshakeTimeoutMs: TIMEOUT_MS },
  });
  const owner = {
    onClosed: () => {},
    onResumed: () => {},
    onResumeFailed: (_: unknown, error: Error) => assert.fail(error),
  };
  const connection = await attempt(context, owner as never, new AbortController().signal);
  connection.changeCarrier();
  await until(() => server.results[1] !== undefined);
  assert.equal(opened, 2);
  connection.session.destroy(new Error("the test is over"));
});

test("a hello whose time is over before it is said waits for no answer", async () => {
  let end: (reason: Error) => void = () => {};
  const over = new Promise<never>((_, reject) => {
    end = reject;
  });
  over.catch(() => {});
  const pipe = { sendMessage: () => {}, readMessage: () => over, destroy: end } as Partial<InnerPipe> as InnerPipe;
  const said = sendHello(pipe, HELLO, AbortSignal.abort());
  const silence = new Promise((resolve) => setImmediate(resolve, "no end"));
  await assert.rejects(Promise.race([said, silence]), /no welcome came/);
});

const CUT = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
const BOX = new DialFault("intercepted", "TLS is intercepted", { facts: { by: "the middlebox" } });
const STOPPED = AbortSignal.abort(new Error("the agent is told to stop"));

/** The facts that the path keeps after a dial that ends so. */
async function remembered(
  end: Error | "a link",
  { outerCa, signal = new AbortController().signal }: { outerCa?: readonly string[]; signal?: AbortSignal } = {},
): Promise<string[]> {
  const said: string[] = [];
  const route = {
    open: () => assert.fail("it is open"),
    worked: () => void said.push("worked"),
    failed: () => void said.push("failed"),
  };
  const terms: DialTerms = { credentials: { ca: "server", ...(outerCa && { outerCa }) }, timeoutMs: 1_000, signal };
  const dialling = end instanceof Error ? Promise.reject(end) : Promise.resolve(end);
  const dialled = reportToRoute({ route } as unknown as DialContext, terms, dialling);
  if (end instanceof Error) await assert.rejects(dialled, end);
  else assert.equal(await dialled, end);
  return said;
}

test("a way that leads to the server is the one that worked", async () => {
  assert.deepEqual(await remembered("a link"), ["worked"]);
});

test("a way that leads to somebody else, or nowhere, goes behind the others", async () => {
  assert.deepEqual(await remembered(CUT), ["failed"]);
  assert.deepEqual(await remembered(BOX), ["failed"], "nobody has said that we go through it");
});

test("a way by which the server itself says no stays where it is", async () => {
  for (const refusal of [
    { status: 401, reason: "no such agent" },
    { status: 503, reason: "draining", retryAfterMs: 1_000 },
    { closeCode: CloseCode.draining, reason: "this server is shutting down" },
  ]) {
    assert.deepEqual(await remembered(new LinkRefused(refusal)), [], refusal.reason);
  }
});

test("a way on which a middlebox opens TLS, as --outer-ca expects it, stays where it is", async () => {
  assert.deepEqual(await remembered(BOX, { outerCa: ["box"] }), []);
  assert.deepEqual(await remembered(CUT, { outerCa: ["box"] }), ["failed"]);
});

test("a way that an agent leaves because it is told to stop has not failed", async () => {
  assert.deepEqual(await remembered(CUT, { signal: STOPPED }), []);
});
