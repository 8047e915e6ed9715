import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { exportSPKI } from "jose";
import { until } from "../../shared/basics/testing/wait.ts";
import { folderOf, hugeFileAt, pipeAt } from "../../shared/documents/testing/files.ts";
import { HttpsStub, never } from "../../shared/kubernetes/testing/https-stub.ts";
import type { JwtTrust } from "../clusters/document.ts";
import { JwtVerifier } from "./jwt-verifier.ts";
import { captureLog, ISSUER, Issuer, nowS, refusal, SUBJECT, showsPartOf, unsigned } from "./testing/tokens.ts";

/** A verifier that knows one issuer's keys from a file. */
async function fromFile(t: TestContext, change: Partial<JwtTrust> = {}) {
  const issuer = await Issuer.create();
  const dir = folderOf(t);
  const file = join(dir, "jwks.json");
  // Renamed over, as editors and Kubernetes do: the verifier never sees half a file.
  const write = (text: string) => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  write(JSON.stringify(await issuer.keySet()));
  const { log, messages } = captureLog();
  const options = { issuer: ISSUER, audience: "culvert", jwks: { file }, subjects: [SUBJECT], ...change };
  const verifier = new JwtVerifier(options, log);
  t.after(() => verifier.close());
  return {
    issuer,
    file,
    write,
    verifier,
    messages,
    verify: (token: string) => verifier.verify(token, { signal: never() }),
  };
}

test("a token of the issuer, for this audience and of a permitted account, says who comes and until when", async (t) => {
  const { issuer, verify } = await fromFile(t, { subjects: ["system:serviceaccount:cul*:agent"] });
  const exp = nowS() + 600;
  assert.deepEqual(await verify(await issuer.token({ exp, aud: ["other", "culvert"] })), {
    ok: { subject: SUBJECT, namespace: "culvert", serviceAccount: "agent", expiresAt: new Date(exp * 1_000) },
  });
});

test("RSA and Ed25519 keys are good as well, and a subject that is no ServiceAccount is a name only", async (t) => {
  for (const algorithm of ["RS256", "PS384", "EdDSA"]) {
    const issuer = await Issuer.create("k", algorithm);
    const { write, messages, verify } = await fromFile(t, { subjects: ["someone"] });
    write(JSON.stringify(await issuer.keySet()));
    await until(() => messages().includes("keys of the token issuer have changed"));
    const verdict = await verify(await issuer.token({ sub: "someone" }));
    assert.ok("ok" in verdict, JSON.stringify(verdict));
    assert.deepEqual([verdict.ok.subject, verdict.ok.namespace], ["someone", undefined]);
  }
});

test("each fault of a token is refused with its reason, and no sentence shows a piece of the token", async (t) => {
  const { issuer, verify } = await fromFile(t);
  const stranger = await Issuer.create("k1");
  const strangerOfOtherName = await Issuer.create("k2");
  const claims = { iss: ISSUER, aud: ["culvert"], sub: SUBJECT, exp: nowS() + 3_600 };
  const publicKey = await exportSPKI(issuer.publicKey);
  const hmac = unsigned({ alg: "HS256", kid: "k1" }, claims).slice(0, -1);
  const good = await issuer.token();
  const [head, , signature] = good.split(".");
  const other = (await issuer.token({ sub: "system:serviceaccount:kube-system:admin" })).split(".")[1];
  const hourAgo = nowS() - 3_600;
  const cases: [string, RegExp][] = [
    [await issuer.token({ aud: "vault" }), /^the token is for "vault", not for "culvert"$/],
    [await issuer.token({ aud: undefined }), /^the token is for nobody, not for "culvert"$/],
    [await issuer.token({ iss: "https://evil" }), /^the token was issued by "https:\/\/evil", not by "https:\/\/kube/],
    [await issuer.token({ exp: hourAgo }), new RegExp(`^the token expired at ${iso(hourAgo)}:`)],
    [await issuer.token({ exp: undefined }), /^the token has no end/],
    [await issuer.token({ exp: 1e300 }), /^the token has no end/],
    [await issuer.token({ nbf: nowS() + 3_600 }), /^the token is not valid yet/],
    [await issuer.token({ sub: undefined }), /^the token names nobody/],
    [
      await issuer.token({ sub: "system:serviceaccount:culvert:default" }),
      /^service account culvert\/default is not permitted here$/,
    ],
    [await issuer.token({ sub: "some\nbody" }), /^the token's subject "some body" is not permitted here$/],
    [await stranger.token(), /^the token is signed by a key that is not the issuer's$/],
    [await strangerOfOtherName.token(), /^the token is signed by a key that is not the issuer's$/],
    [unsigned({ alg: "none" }, claims), /^the token's algorithm "none" is not allowed/],
    [unsigned({ alg: "NONE", kid: "k1" }, claims, "c2ln"), /^the token's algorithm "NONE" is not allowed/],
    [
      `${hmac}.${createHmac("sha256", publicKey).update(hmac).digest("base64url")}`,
      /^the token's algorithm "HS256" is not allowed/,
    ],
    [`${head}.${other}.${signature}`, /^the token is signed by a key that is not the issuer's$/],
    [unsigned({ alg: "ES256", kid: "k1", crit: ["x"], x: 1 }, claims, signature), /^the token is no signed JWT$/],
    [unsigned({ alg: ["ES256"] }, claims, signature), /is no signed JWT|is not allowed/],
    [unsigned({}, claims, signature), /is no signed JWT|is not allowed/],
    ["opaque", /^the token is no signed JWT$/],
    ["a.b.c.d.e", /^the token is no signed JWT$/],
    ["", /^the token is empty$/],
    [`${good} ${good}`, /^the token holds characters that no bearer token has$/],
    [good + "x".repeat(1 << 20), /^the token is longer than 16 KiB$/],
  ];
  for (const [token, sentence] of cases) {
    const said = refusal(await verify(token));
    assert.match(said, sentence);
    assert.ok(!showsPartOf(token, said), said);
  }
  assert.ok("ok" in (await verify(good)), "and the verifier goes on");
});

function iso(seconds: number): string {
  return new Date(seconds * 1_000).toISOString().replace(".000", "");
}

test("a star in a subject ends at the next colon, and alone it is everybody", async (t) => {
  const cases: [string[], string, boolean][] = [
    [["system:serviceaccount:*:agent"], "system:serviceaccount:a:b:agent", false],
    [["system:serviceaccount:*:agent"], "system:serviceaccount:a:agent", true],
    [["system:serviceaccount:team-*:*"], "system:serviceaccount:team-1:x", true],
    [["system:*"], SUBJECT, false],
    [["*"], SUBJECT, true],
    [["nobody", SUBJECT], SUBJECT, true],
  ];
  for (const [subjects, sub, permitted] of cases) {
    const { issuer, verify } = await fromFile(t, { subjects });
    assert.equal("ok" in (await verify(await issuer.token({ sub }))), permitted, `${subjects} ${sub}`);
  }
});

test("a CA of the issuer's server that is none fails the start", async (t) => {
  const { file } = await fromFile(t);
  const jwks = { url: "https://localhost/jwks", caFile: file };
  const trust = { issuer: ISSUER, audience: "culvert", jwks, subjects: [SUBJECT] };
  assert.throws(() => new JwtVerifier(trust, captureLog().log), /CA certificate .*jwks\.json holds no PEM certificate/);
});

test("an algorithm that is not on the list is refused, although the key would fit", async (t) => {
  const { issuer, verify } = await fromFile(t, { algorithms: ["RS256"] });
  assert.equal(refusal(await verify(await issuer.token())), `the token's algorithm "ES256" is not allowed (RS256)`);
});

test("a key file that cannot be used fails the start, each with its reason and no word of its content", async (t) => {
  const { file, write, issuer } = await fromFile(t);
  const { log } = captureLog();
  const options = { issuer: ISSUER, audience: "culvert", subjects: [SUBJECT] };
  const [key] = (await issuer.keySet()).keys;
  const cases: [string, RegExp][] = [
    ["not json", /jwks\.json is no JSON Web Key Set$/],
    ["[]", /is no JSON Web Key Set$/],
    ['{"keys":[]}', /holds no key/],
    [JSON.stringify({ keys: [key, { kty: "oct", k: "c2VjcmV0" }] }), /holds a private or a shared key/],
    [JSON.stringify({ keys: [{ ...key, d: "c2VjcmV0" }] }), /holds a private or a shared key/],
  ];
  for (const [text, sentence] of cases) {
    write(text);
    assert.throws(
      () => new JwtVerifier({ ...options, jwks: { file } }, log),
      ({ message }: Error) => sentence.test(message) && !message.includes("c2VjcmV0"),
    );
  }
  assert.throws(
    () => new JwtVerifier({ ...options, jwks: { file: "/nowhere/jwks.json" } }, log),
    /jwks\.json cannot be read: there is no such file$/,
  );
  using _pipe = pipeAt(`${file}.pipe`);
  hugeFileAt(`${file}.huge`);
  for (const [kind, sentence] of [
    ["pipe", /pipe cannot be read: it is a pipe, a socket or a device, not a regular file$/],
    ["huge", /huge cannot be read: it is larger than 4 MiB$/],
  ] as const) {
    assert.throws(() => new JwtVerifier({ ...options, jwks: { file: `${file}.${kind}` } }, log), sentence);
  }
});

test("a changed key file takes effect, and a broken one leaves the old keys in force", async (t) => {
  const { issuer, write, verify, messages } = await fromFile(t);
  const [before, after] = [await issuer.token(), await Issuer.create("k2")];
  write("{");
  await until(() => messages().includes("new keys of the token issuer cannot be used"));
  assert.ok("ok" in (await verify(before)));
  write(JSON.stringify(await after.keySet()));
  await until(() => messages().includes("keys of the token issuer have changed"));
  assert.ok("ok" in (await verify(await after.token())));
  assert.match(refusal(await verify(before)), /not the issuer's/);
});

/** A verifier that fetches an issuer's keys. */
async function fromUrl(t: TestContext) {
  const issuer = await Issuer.create();
  const stub = await HttpsStub.start(t);
  const keySet = await issuer.keySet();
  stub.answer = () => ({ status: 200, body: keySet });
  const caFile = join(folderOf(t), "ca.crt");
  writeFileSync(caFile, stub.authority.cert);
  const jwks = { url: `${stub.url}/openid/v1/jwks`, caFile };
  const make = () => {
    const options = { issuer: ISSUER, audience: "culvert", jwks, subjects: [SUBJECT] };
    const verifier = new JwtVerifier(options, captureLog().log);
    t.after(() => verifier.close());
    return verifier;
  };
  return { issuer, stub, make, keySet };
}

test("keys from a URL are fetched once for many tokens, and an unknown key asks for them no more than that", async (t) => {
  const { issuer, stub, make } = await fromUrl(t);
  const verifier = make();
  const token = await issuer.token();
  const verdicts = await Promise.all(Array.from({ length: 20 }, () => verifier.verify(token, { signal: never() })));
  assert.ok(verdicts.every((verdict) => "ok" in verdict));
  const stranger = await Issuer.create("k9");
  for (let i = 0; i < 5; i++)
    assert.match(refusal(await verifier.verify(await stranger.token(), { signal: never() })), /not the iss/);
  assert.deepEqual(
    stub.asked.map(({ path }) => path),
    ["/openid/v1/jwks"],
  );
});

test("an issuer that does not answer is waited for no longer than the peer waits", async (t) => {
  const { issuer, stub, make } = await fromUrl(t);
  stub.answer = () => new Promise(() => {});
  const gone = new AbortController();
  const verdict = make().verify(await issuer.token(), { signal: gone.signal });
  await until(() => stub.asked.length === 1);
  gone.abort(new Error("the agent has gone"));
  await assert.rejects(verdict, /the agent has gone/);
});

test("an issuer that answers nothing of use makes an agent come back later, and refuses none", async (t) => {
  const { issuer, stub, make, keySet } = await fromUrl(t);
  const token = await issuer.token();
  const bodies: [number, unknown, RegExp][] = [
    [500, "", /500/],
    [302, keySet, /302/],
    [200, "<html>", /JSON/],
    [200, { keys: 7 }, /malformed/],
    [200, " ".repeat(2 << 20), /too long/],
  ];
  for (const [status, body, detail] of bodies) {
    stub.answer = () => ({ status, body });
    const verdict = await make().verify(token, { signal: never() });
    assert.ok("unavailable" in verdict, JSON.stringify(verdict));
    assert.equal(verdict.unavailable, "the keys of the token issuer cannot be had now");
    assert.match(verdict.detail, detail);
    assert.ok(verdict.retryAfterMs > 0);
  }
  stub.stop();
  const verdict = await make().verify(token, { signal: never() });
  assert.ok("unavailable" in verdict && /ECONNREFUSED/.test(verdict.detail), JSON.stringify(verdict));
});

test("after a failed fetch of keys there is none for five seconds, however many tokens come", async (t) => {
  const { issuer, stub, make, keySet } = await fromUrl(t);
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  stub.answer = () => ({ status: 500, body: "" });
  const verifier = make();
  const verify = async () => verifier.verify(await issuer.token({ jti: String(Math.random()) }), { signal: never() });
  for (let count = 0; count < 10; count++) {
    const verdict = await verify();
    assert.ok("unavailable" in verdict && /500/.test(verdict.detail), JSON.stringify(verdict));
  }
  assert.equal(stub.asked.length, 1);
  stub.answer = () => ({ status: 200, body: keySet });
  t.mock.timers.tick(4_999);
  assert.ok("unavailable" in (await verify()));
  t.mock.timers.tick(1);
  assert.ok("ok" in (await verify()));
  assert.equal(stub.asked.length, 2);
});

test("a token that cannot be good by its own claims costs no fetch of keys", async (t) => {
  const { issuer, stub, make } = await fromUrl(t);
  const verifier = make();
  const changes = [{ iss: "https://evil" }, { aud: "vault" }, { aud: [] }, { exp: nowS() - 60 }, { exp: undefined }];
  for (const change of changes) refusal(await verifier.verify(await issuer.token(change), { signal: never() }));
  assert.equal(stub.asked.length, 0);
});

test("an issuer whose certificate comes from another CA is not believed", async (t) => {
  const { issuer, stub } = await fromUrl(t);
  const jwks = { url: `${stub.url}/jwks` };
  const options = { issuer: ISSUER, audience: "culvert", jwks, subjects: [SUBJECT] };
  const verifier = new JwtVerifier(options, captureLog().log);
  t.after(() => verifier.close());
  const verdict = await verifier.verify(await issuer.token(), { signal: never() });
  assert.ok("unavailable" in verdict && stub.asked.length === 0, JSON.stringify(verdict));
});
