import assert from "node:assert/strict";
import { Socket } from "node:net";
import { test } from "node:test";
import { verifyPeer } from "../../shared/tls/identity.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { retryAfter } from "./retry.ts";
import { isUnseen, UnseenCertificate } from "./unseen-certificate.ts";

const { unauthenticated: closeCode } = CloseCode;

test("a server that has seen no certificate is told from one that does not take ours", () => {
  // Over TLS the doctor's tests hear the server itself (e2e/scenarios/doctor-faults.test.ts).
  const { refusal = "" } = verifyPeer(new Socket(), undefined);
  assert.equal(isUnseen(new LinkRefused({ closeCode, reason: refusal })), true);
  const refused = ["the client certificate expired on 2026-01-01", 'agents of cluster "blue" come with inner TLS only'];
  for (const reason of refused) assert.equal(isUnseen(new LinkRefused({ closeCode, reason })), false);
});

test("a certificate that was not seen is refused as before, and the cure is beside the server's sentence", () => {
  const refusal = new LinkRefused({ status: 401, reason: "no client certificate was sent", retryAfterMs: 7_000 });
  const options = { baseMs: 250, capMs: 30_000, random: () => 0 };
  const unseen = new UnseenCertificate(refusal);
  assert.equal(unseen.cause, refusal);
  const [before, now] = [refusal, unseen].map((error) => retryAfter(error, 0, 0, options));
  assert.deepEqual({ ...now, reason: "" }, { ...before, reason: "" });
  assert.match(
    now?.reason ?? "",
    /\(401\): no client certificate was sent; we have shown ours, .*--outer-ca .*--ca-cert/,
  );
});
