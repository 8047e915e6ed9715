import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { QueueNode } from "../../shared/basics/collections.ts";
import { TurnQueue } from "../../shared/basics/timers.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import { certificateOf } from "../../shared/pki/testing/certificates.ts";
import { ClientTrust } from "../../shared/tls/client-trust.ts";
import { type OpenConnect, OpenConnects } from "../cluster-runtime/open-connects.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";
import { CallerReverification } from "./verify-again.ts";

/** The parts of a virtual host that this test uses. */
type HostParts = Pick<ClusterVirtualHost, "open" | "trust" | "verifier" | "identities" | "rule" | "sourceObjection">;

function hostOf(more: Partial<HostParts> = {}): { host: ClusterVirtualHost } & { parts: HostParts } {
  const parts: HostParts = {
    ...{ open: new OpenConnects(), trust: new ClientTrust(""), verifier: undefined, identities: [], rule: "a list" },
    sourceObjection: () => undefined,
    ...more,
  };
  return { host: parts as ClusterVirtualHost, parts };
}

class Connect implements OpenConnect {
  readonly place: QueueNode<OpenConnect> = new QueueNode(this);
  readonly address = "192.0.2.1";
  readonly targetCluster = undefined;
  refusal: CulvertError | undefined;

  refuse(refusal: CulvertError): void {
    this.refusal = refusal;
  }
}

/** Says what it is given of each token, and counts how many it is asked about at once. */
class CountingVerifier implements TokenVerifier {
  asked = 0;
  atOnce = 0;
  most = 0;
  verdict: (token: string) => VerificationResult = () => ({ ok: { subject: "s", expiresAt: new Date() } });

  async verify(token: string): Promise<VerificationResult> {
    this.asked++;
    this.most = Math.max(this.most, ++this.atOnce);
    await new Promise((resolve) => setImmediate(resolve));
    this.atOnce--;
    return this.verdict(token);
  }

  close(): void {}
}

const again = new CallerReverification(new TurnQueue());

/** Runs until nothing is left to do in turns. */
async function settled(connects: readonly Connect[]): Promise<number> {
  let turns = 0;
  while (connects.some(({ refusal }) => refusal === undefined) && turns < 5_000) {
    await new Promise((resolve) => setImmediate(resolve));
    turns++;
  }
  return turns;
}

test("thousands of CONNECTs, of one credential and of many, are reset in turns between which others are served", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const leaf = await certificateOf({ cn: "leaf", isCa: false, by: ca });
  const chain = [new X509Certificate(leaf.cert).raw];
  const { host, parts } = hostOf();
  const connects = Array.from({ length: 3_000 }, () => new Connect());
  connects.forEach((connect, index) => {
    const fingerprint256 = index < 1_500 ? "one" : `another ${index}`;
    const peer = { cn: "leaf", o: [], dns: [], uri: [], serial: "01", notAfter: new Date(), fingerprint256, chain };
    parts.open.join({ kind: "certificate", peer }, connect);
  });
  void again.verify(host);
  assert.ok(connects.filter(({ refusal }) => refusal !== undefined).length < 100, "not in one go");
  const turns = await settled(connects);
  assert.ok(turns > 100, `${turns} turns`);
  assert.equal(connects.filter(({ refusal }) => refusal?.code === "unauthenticated").length, 3_000);
});

test("a token is verified once for all of its CONNECTs, by other rules only, and few of them at once", async () => {
  const [before, now] = [new CountingVerifier(), new CountingVerifier()];
  const { host, parts } = hostOf({ verifier: before });
  for (let index = 0; index < 300; index++) {
    parts.open.join({ kind: "token", text: `token ${index % 100}`, verifier: before }, new Connect());
  }
  await again.verify(host);
  assert.deepEqual([before.asked, now.asked], [0, 0]);
  Object.assign(parts, { verifier: now });
  await again.verify(host);
  assert.deepEqual([before.asked, now.asked, now.most], [0, 100, 32]);
  await again.verify(host);
  assert.equal(now.asked, 100);
});

test("a token of which nobody can say anything is asked about again, and refused when the time is over", async () => {
  const verifier = new CountingVerifier();
  verifier.verdict = (token) => {
    if (token === "later" && verifier.asked > 2) return { ok: { subject: "s", expiresAt: new Date() } };
    return { unavailable: "not now", detail: "", retryAfterMs: 1 };
  };
  const { host, parts } = hostOf({ verifier: verifier });
  const [later, never] = [new Connect(), new Connect()];
  parts.open.join({ kind: "token", text: "later", verifier: new CountingVerifier() }, later);
  parts.open.join({ kind: "token", text: "never", verifier: new CountingVerifier() }, never);
  await again.verify(host);
  assert.equal(later.refusal, undefined);
  assert.match(never.refusal?.message ?? "", /nobody could verify this one by the new rules in time/);
});

test("what has been found by rules that have changed again, or of a token that was proved meanwhile, refuses nobody", async () => {
  const [before, now, next] = [new CountingVerifier(), new CountingVerifier(), new CountingVerifier()];
  const { host, parts } = hostOf({ verifier: now });
  const [first, second] = [new Connect(), new Connect()];
  parts.open.join({ kind: "token", text: "first", verifier: before }, first);
  now.verdict = () => {
    Object.assign(parts, { verifier: next });
    return { refused: "no" };
  };
  await again.verify(host);
  next.verdict = () => {
    parts.open.join({ kind: "token", text: "first", verifier: next }, second);
    return { refused: "not yet" };
  };
  await again.verify(host);
  assert.deepEqual([now.asked, next.asked, first.refusal, second.refusal], [1, 1, undefined, undefined]);
});
