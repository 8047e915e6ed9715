import assert from "node:assert/strict";
import { test } from "node:test";
import { DialFault } from "../../shared/faults/faults.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { type DialContext, type DialTerms, reportToRoute } from "./dial-context.ts";

const CUT = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
const BOX = new DialFault("intercepted", "TLS is intercepted", { facts: { by: "the middlebox" } });
const STOPPED = AbortSignal.abort(new Error("the agent is told to stop"));

/** What a dial that ends so has the way remember. */
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
