import assert from "node:assert/strict";
import { test } from "node:test";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { FAULTS } from "../../shared/faults/fault-rows.ts";
import { DialFault, type FaultCode } from "../../shared/faults/faults.ts";
import { CallersPort, dialFault, middleboxFault, SECURING } from "../../shared/link/dial-faults.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { retryAfter } from "./retry.ts";

const OPTIONS = { baseMs: 250, capMs: 30_000 };
const most = { ...OPTIONS, random: () => 1 };
const least = { ...OPTIONS, random: () => 0 };

test("full jitter: a wait lies between nothing and a bound that doubles up to the cap", () => {
  const error = new Error("x");
  for (const [failures, bound] of [
    [0, 250],
    [6, 250],
    [7, 500],
    [11, 8_000],
    [14, 30_000],
    [5_000, 30_000],
  ] as const) {
    assert.equal(retryAfter(error, failures, 0, most).waitMs, bound);
    assert.equal(retryAfter(error, failures, 0, least).waitMs, 0);
  }
});

test("what the server asks for is a floor, and no server sends an agent away for long", () => {
  const refused = (retryAfterMs: number) => new LinkRefused({ status: 503, reason: "draining", retryAfterMs });
  assert.equal(retryAfter(refused(4_000), 0, 0, least).waitMs, 4_000);
  assert.equal(retryAfter(refused(1_000), 0, 4_000, least).waitMs, 4_000);
  assert.ok(retryAfter(refused(86_400_000), 0, 0, most).waitMs <= 11 * 60_000);
  const unauthenticated = new LinkRefused({ status: 401, reason: "no", retryAfterMs: 86_400_000 });
  assert.ok(retryAfter(unauthenticated, 0, 0, most).waitMs <= 11 * 60_000);
});

test("a close code cannot ask for a pause: where asking often changes nothing, the agent makes one", () => {
  const { alreadyConnected, limited, draining, duplicate } = CloseCode;
  const waits = [alreadyConnected, limited, draining, duplicate].map(
    (closeCode) => retryAfter(new LinkRefused({ closeCode, reason: "no" }), 0, 0, least).waitMs,
  );
  assert.deepEqual(waits, [1_000, 1_000, 1_000, 0]);
});

test("a refusal of credentials waits between half the cap and the cap", () => {
  for (const refusal of [{ status: 401 }, { status: 403 }, { closeCode: 4401 }, { closeCode: 4403 }]) {
    const error = new LinkRefused({ ...refusal, reason: "no" });
    assert.deepEqual(
      [retryAfter(error, 0, 0, least).waitMs, retryAfter(error, 0, 0, most).waitMs],
      [OPTIONS.capMs / 2, OPTIONS.capMs],
    );
    assert.equal(retryAfter(error, 0, 0, most).refused, true);
  }
  assert.equal(retryAfter(new LinkRefused({ closeCode: 4409, reason: "no" }), 0, 0, most).refused, false);
});

test("the wrong port of the right server is a refusal: it waits until somebody corrects it", () => {
  const { label, refused, waitMs, reason } = retryAfter(new CallersPort(407), 0, 0, least);
  assert.deepEqual([label, refused, waitMs], ["callers_port", true, OPTIONS.capMs / 2]);
  assert.match(reason, /^the server refused the tunnel \(407\): this is its port for callers \(CONNECT\)/);
});

test("the reason keeps what an operator can look up", () => {
  const code = (message: string, value: string) => Object.assign(new Error(message), { code: value });
  const reason = (error: unknown) => retryAfter(error, 0, 0, most).reason;
  assert.equal(reason(code("connect ECONNREFUSED ::1:443", "ECONNREFUSED")), "connect ECONNREFUSED ::1:443");
  assert.equal(reason("odd"), "odd");
  const ssl = "error:0A00010B:SSL routines:ssl3_get_record:wrong version number:ssl3_record.c:350:\n";
  assert.equal(reason(new Error(ssl)), ssl.trimEnd(), "one line");
});

test("a 503 is not called draining: what the server said is in the reason", () => {
  const crowded = "too many connections of agents have not sent their hello: come back in 3 s";
  const { label, reason, refused, waitMs } = retryAfter(
    new LinkRefused({ status: 503, reason: crowded, retryAfterMs: 3_000 }),
    ...([0, 0, least] as const),
  );
  assert.deepEqual([label, refused, waitMs], ["unavailable", false, 3_000]);
  assert.equal(reason, `the server refused the tunnel (503): ${crowded}`);
  const { label: behindUpgrade } = retryAfter(new LinkRefused({ closeCode: 4452, reason: "no" }), 0, 0, least);
  assert.equal(behindUpgrade, "draining");
});

test("a proxy that refuses a password is asked as rarely as a server that refuses a certificate, and is not the server", () => {
  const error = new RouteFault("proxy_auth_refused", "the proxy http://p:3128 refuses the password", {
    at: "http://p:3128",
  });
  const { label, refused, waitMs } = retryAfter(error, 0, 0, least);
  assert.deepEqual([label, refused, waitMs], ["proxy_auth_refused", false, OPTIONS.capMs / 2]);
  const busy = new RouteFault("proxy_unavailable", "no", { at: "http://p:3128", retryAfterMs: 5_000 });
  assert.equal(retryAfter(busy, 0, 0, least).waitMs, 5_000);
});

test("what stands in between has a word of its own in the metric", () => {
  const page = middleboxFault("web_page", "something in between answered", 2_000);
  const { label, refused, reason, waitMs } = retryAfter(page, 0, 0, least);
  assert.deepEqual([label, refused, reason, waitMs], ["web_page", false, "something in between answered", 2_000]);
});

test("each fault counts by its own code, but for the two that are a server's refusal", () => {
  const others: Readonly<Record<string, string>> = { certificate_unseen: "unauthenticated", not_admitted: "refused" };
  for (const code of Object.keys(FAULTS) as FaultCode[]) {
    const { label, fault } = retryAfter(new DialFault(code, "no", { facts: { by: "it" } }), 0, 0, least);
    assert.deepEqual([label, fault], [others[code] ?? code, code]);
  }
});

test("what speaks no TLS counts as that, behind a proxy too: nobody knows whose it is", () => {
  const plain = Object.assign(new Error("wrong version number"), { code: "ERR_SSL_WRONG_VERSION_NUMBER" });
  for (const proxy of [undefined, { at: "http://p:3128", from: "--proxy" }]) {
    const error = dialFault(plain, { step: SECURING, host: "server", proxy });
    const { label, fault, refused, waitMs, reason } = retryAfter(error, 0, 0, least);
    assert.deepEqual([label, refused, waitMs], ["no_tls", false, 0]);
    assert.match(reason, /port in --server /);
    assert.equal(fault, "no_tls");
  }
});
