import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { folderOf } from "../../shared/documents/testing/files.ts";
import { kubeconfig } from "../../shared/kubernetes/access.ts";
import { type Answer, type Asked, HttpsStub, never } from "../../shared/kubernetes/testing/https-stub.ts";
import { nowS, refusal, SUBJECT, showsPartOf, unsigned } from "./testing/tokens.ts";
import { ApiServerMonitor, type TokenReviewOptions, TokenReviewVerifier } from "./token-review.ts";
import type { ApiServerState } from "./verifier.ts";

/** A token as an API server gets to see it; who signed it is the API server's business. */
function token(name = "agent", exp: number | undefined = nowS() + 3_600): string {
  return unsigned({ alg: "RS256", kid: "k" }, { name, exp, aud: ["culvert"] }, "c2lnbmF0dXJlLW9mLWE".repeat(4));
}

function yes(change: object = {}): Answer {
  const status = { authenticated: true, user: { username: SUBJECT }, audiences: ["culvert"], ...change };
  return { status: 201, body: { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", status } };
}

/** A verifier with a client certificate for an API server whose answers the test gives. */
async function reviewed(t: TestContext, change: Partial<TokenReviewOptions> = {}) {
  const stub = await HttpsStub.start(t);
  stub.answer = () => yes();
  const dir = folderOf(t);
  const path = await stub.kubeconfig(dir);
  const verifier = new TokenReviewVerifier({
    audience: "culvert",
    agentNamespace: "culvert",
    agentServiceAccount: "agent",
    access: kubeconfig(path),
    onApiServer: () => {},
    ...change,
  });
  t.after(() => verifier.close());
  if (change.onApiServer === undefined) {
    await until(() => stub.asked.length === 1); // the verifier's own question
    stub.asked.length = 0;
  }
  return { stub, path, verifier, verify: (text: string, signal = never()) => verifier.verify(text, { signal }) };
}

test("the API server is asked for our audience, by our certificate, and its word is the identity", async (t) => {
  const { stub, verify } = await reviewed(t);
  const exp = nowS() + 600;
  const mine = token("agent", exp);
  assert.deepEqual(await verify(mine), {
    ok: { subject: SUBJECT, namespace: "culvert", serviceAccount: "agent", expiresAt: new Date(exp * 1_000) },
  });
  const [asked] = stub.asked as [Asked];
  assert.equal(asked.path, "/apis/authentication.k8s.io/v1/tokenreviews");
  assert.match(asked.clientName ?? "", /culvert-server/);
  assert.deepEqual(JSON.parse(asked.body), {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec: { token: mine, audiences: ["culvert"] },
  });
});

test("an API server whose answers take long to read is not believed for a while", async (t) => {
  const { stub, verify } = await reviewed(t);
  const long = JSON.stringify({ ...(yes().body as object), rest: Array(300_000).fill([]) });
  stub.answer = () => ({ status: 201, body: long });
  let unavailable = "";
  for (let count = 0; count < 1_000 && unavailable === ""; count++) {
    const result = await verify(token(`agent ${count}`));
    if ("unavailable" in result) ({ unavailable } = result);
  }
  assert.match(unavailable, /its answers take too long to read$/);
});

test("each no has its reason, and none shows a piece of the token", async (t) => {
  const { stub, verify } = await reviewed(t);
  const mine = token();
  const cases: [object, RegExp][] = [
    [
      { authenticated: false, error: '[invalid bearer token, token audiences ["vault"] is invalid]' },
      /^the API server does not accept the token for "culvert": \[invalid bearer token, token audiences \["vault"\]/,
    ],
    [{ authenticated: undefined }, /^the API server does not accept the token for "culvert"$/],
    [
      { authenticated: false, error: `bad token ${mine} and ${mine.split(".")[2]}` },
      /: bad token \[token\] and \[token\]$/,
    ],
    [{ audiences: undefined }, /^the API server does not say that the token is for "culvert"$/],
    [{ audiences: [] }, /does not say that the token is for "culvert"$/],
    [{ audiences: ["https://kubernetes.default.svc"] }, /does not say that the token is for "culvert"$/],
    [
      { user: { username: "system:serviceaccount:culvert:default" } },
      /^service account culvert\/default is not permitted here$/,
    ],
    [
      { user: { username: "system:serviceaccount:kube-system:agent" } },
      /^service account kube-system\/agent is not permitted here$/,
    ],
    [
      { user: { username: "system:serviceaccount:culvert:agent:x" } },
      /^the token's subject ".*" is not permitted here$/,
    ],
    [{ user: { username: "admin" } }, /^the token's subject "admin" is not permitted here$/],
    [{ user: {} }, /^the token's subject "" is not permitted here$/],
  ];
  for (const [index, [status, sentence]] of cases.entries()) {
    const text = index === 2 ? mine : token(`agent-${index}`);
    stub.answer = () => yes(status);
    const said = refusal(await verify(text));
    assert.match(said, sentence);
    assert.ok(!showsPartOf(text, said), said);
  }
});

test("a token that is over, endless, too long, for somebody else or none at all is refused without asking anybody", async (t) => {
  const { stub, verify } = await reviewed(t);
  const cases: [string, RegExp][] = [
    [token("a", nowS() - 3_600), /^the token expired at \d{4}-.*Z:/],
    [unsigned({ alg: "none" }, { sub: SUBJECT }), /^the token has no end/],
    [unsigned({ alg: "RS256" }, { exp: nowS() + 60, aud: "vault" }), /^the token is for "vault", not for "culvert"$/],
    [unsigned({ alg: "RS256" }, { exp: nowS() + 60 }), /^the token is for nobody, not for "culvert"$/],
    ["opaque", /^the token has no end/],
    ["", /is empty$/],
    ["x".repeat(1 << 20), /longer than 16 KiB$/],
  ];
  for (const [text, sentence] of cases) assert.match(refusal(await verify(text)), sentence);
  assert.equal(stub.asked.length, 0);
});

test("patterns with a star let in what fits both of them", async (t) => {
  const { stub, verify } = await reviewed(t, { agentNamespace: "team-*", agentServiceAccount: "*-agent" });
  const cases: [string, boolean][] = [
    ["team-1:my-agent", true],
    ["y:my-agent", false],
    ["team-1:agent", false],
  ];
  for (const [name, permitted] of cases) {
    stub.answer = () => yes({ user: { username: `system:serviceaccount:${name}` } });
    assert.equal("ok" in (await verify(token(name))), permitted, name);
  }
});

test("without an answer of the API server an agent is asked to come back, and none is refused", async (t) => {
  const { stub, path, verify } = await reviewed(t);
  const cases: [Answer, RegExp, RegExp, number?][] = [
    [{ status: 500, body: "" }, /answers with an error$/, /localhost:\d+: 500/],
    [{ status: 429, headers: { "retry-after": "7" }, body: "" }, /answers with an error$/, /429/, 7_000],
    [{ status: 404, body: "" }, /answers with an error$/, /404/],
    [{ status: 401, body: "" }, /does not know this server's credentials$/, /401/],
    [{ status: 403, body: "" }, /this server may not ask it$/, /403: bind .* system:auth-delegator/],
    [{ status: 200, body: "<html>" }, /is no TokenReview$/, /no JSON/],
    [{ status: 200, body: { status: { authenticated: "yes" } } }, /is no TokenReview$/, /authenticated/],
    [{ status: 200, body: " ".repeat(2 << 20) }, /does not answer$/, /too long/],
  ];
  for (const [answer, sentence, detail, retryAfterMs] of cases) {
    stub.answer = () => answer;
    const verdict = await verify(token());
    assert.ok("unavailable" in verdict, JSON.stringify(verdict));
    assert.match(verdict.unavailable, sentence);
    assert.match(verdict.detail, detail);
    assert.doesNotMatch(verdict.unavailable, /localhost|\//, "an agent need not know where the API server is");
    assert.equal(verdict.retryAfterMs, retryAfterMs ?? 5_000);
  }
  stub.answer = () => yes();
  const mine = token();
  assert.ok("ok" in (await verify(mine)), "none of them was kept");
  stub.stop();
  const down = await verify(token("another"));
  assert.ok("unavailable" in down && /ECONNREFUSED/.test(down.detail), JSON.stringify(down));
  assert.ok("ok" in (await verify(mine)), "a verdict of a moment ago outlives the API server");
  writeFileSync(path, "no: kubeconfig");
  const broken = await verify(token("a third"));
  assert.ok("unavailable" in broken && broken.detail.includes(path), JSON.stringify(broken));
});

test("an API server that never answers is given up", async (t) => {
  const { stub, verify } = await reviewed(t);
  stub.answer = () => new Promise(() => {});
  const after = AbortSignal.timeout.bind(AbortSignal);
  const timeout = t.mock.method(AbortSignal, "timeout", () => after(50));
  const verdict = await verify(token());
  assert.deepEqual(timeout.mock.calls[0]?.arguments, [5_000]);
  assert.ok("unavailable" in verdict && /too long to answer/.test(verdict.detail), JSON.stringify(verdict));
});

test("one review serves all who send the same token at once, and for a minute after", async (t) => {
  const { stub, verify } = await reviewed(t);
  const mine = token();
  const verdicts = await Promise.all(Array.from({ length: 20 }, () => verify(mine)));
  assert.ok(verdicts.every((verdict) => "ok" in verdict));
  await verify(mine);
  assert.equal(stub.asked.length, 1);
  await verify(token("another"));
  assert.equal(stub.asked.length, 2);
});

test("a good result is kept for a minute, a refusal for ten seconds, and neither beyond the token's end", async (t) => {
  const { stub, verify } = await reviewed(t);
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const asks = async (text: string) => {
    const before = stub.asked.length;
    await verify(text);
    return stub.asked.length - before;
  };
  const [long, short, bad] = [token("long"), token("short", nowS() + 20), token("bad")];
  assert.deepEqual([await asks(long), await asks(short)], [1, 1]);
  stub.answer = () => yes({ authenticated: false });
  assert.equal(await asks(bad), 1);
  t.mock.timers.tick(9_000);
  assert.deepEqual([await asks(long), await asks(short), await asks(bad)], [0, 0, 0]);
  t.mock.timers.tick(12_000);
  assert.deepEqual([await asks(long), await asks(short), await asks(bad)], [0, 1, 1]);
  t.mock.timers.tick(40_000);
  assert.equal(await asks(long), 1, "an account that was deleted is noticed within a minute");
});

test("an access that cannot work fails the start", async (t) => {
  const { path } = await reviewed(t);
  const options = { audience: "culvert", agentNamespace: "*", agentServiceAccount: "*", onApiServer: () => {} };
  writeFileSync(path, "{}");
  assert.throws(
    () => new TokenReviewVerifier({ ...options, access: kubeconfig(path) }),
    /^Error: kubeconfig \/.*contexts/,
  );
});

test("a caller may give up, and the others still get their result", async (t) => {
  const { stub, verify } = await reviewed(t);
  let answer = (_: Answer): void => {};
  stub.answer = () =>
    new Promise<Answer>((resolve) => {
      answer = resolve;
    });
  const [mine, gone] = [token(), new AbortController()];
  const [leaves, stays] = [verify(mine, gone.signal), verify(mine)];
  await until(() => stub.asked.length === 1);
  gone.abort(new Error("the agent has gone"));
  await assert.rejects(leaves, /the agent has gone/);
  answer(yes());
  assert.ok("ok" in (await stays));
  assert.equal(stub.asked.length, 1);
});

test("the API server is asked at the start without an agent, and its failure and its return are reported", async (t) => {
  const changes: ApiServerState[] = [];
  const { stub, verify, verifier } = await reviewed(t, { onApiServer: (state) => changes.push(state) });
  stub.answer = () => yes({ authenticated: false });
  assert.deepEqual(verifier.apiServer, { state: "untried" });
  await until(() => changes.length === 1);
  assert.deepEqual(changes, [{ state: "answers" }]);
  assert.equal(stub.asked.length, 1);
  stub.answer = () => ({ status: 403, body: "" });
  await verify(token("one"));
  const [, failing] = changes;
  assert.ok(failing?.state === "failing" && failing.hasAnswered);
  assert.match(
    failing.fault,
    /cannot be asked: this server may not ask it \(localhost:\d+ answered 403: bind the account/,
  );
  await verify(token("two"));
  assert.equal(changes.length, 2, "the same fault is told once");
  stub.answer = () => yes();
  await verify(token("three"));
  assert.deepEqual(changes[2], { state: "answers" });
});

test("a question that was dropped says nothing about the API server", async (t) => {
  const changes: ApiServerState[] = [];
  const { stub, verifier } = await reviewed(t, { onApiServer: (state) => changes.push(state) });
  stub.answer = () => new Promise(() => {});
  await until(() => stub.asked.length === 1);
  verifier.close();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(changes, []);
});

test("a verifier that is closed asks its API server no more", async (t) => {
  const { verifier } = await reviewed(t, { onApiServer: () => {} });
  const close = t.mock.method(ApiServerMonitor.prototype, "close");
  verifier.close();
  assert.equal(close.mock.callCount(), 1);
});
