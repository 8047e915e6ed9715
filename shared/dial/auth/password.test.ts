import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { type Challenge, parseChallenges } from "./challenges.ts";
import { DIGEST, digestAuthorization } from "./password.ts";
import type { AuthContext } from "./scheme.ts";

const MUFASA = { user: "Mufasa", password: "Circle of Life" };
const NONCE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
const OPAQUE = "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS";

function challengeOf(parameters: string): Challenge {
  const [challenge] = parseChallenges([`Digest ${parameters}`]);
  assert.ok(challenge);
  return challenge;
}

/** The parameters of an authorization, unquoted. */
function fieldsOf(value: string): Record<string, string> {
  const [challenge] = parseChallenges([value]);
  return Object.fromEntries(challenge?.parameters ?? []);
}

test("the responses are those of RFC 7616 §3.9.1", () => {
  const request = {
    ...MUFASA,
    method: "GET",
    uri: "/dir/index.html",
    cnonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
    count: 1,
  };
  for (const [algorithm, response] of [
    ["MD5", "8ca523f5e9506fed4657c9700eebdbec"],
    ["SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"],
  ]) {
    const challenge = challengeOf(
      `realm="http-auth@example.org", qop="auth, auth-int", algorithm=${algorithm}, nonce="${NONCE}", opaque="${OPAQUE}"`,
    );
    assert.deepEqual(fieldsOf(digestAuthorization(challenge, request).value), {
      username: "Mufasa",
      realm: "http-auth@example.org",
      uri: "/dir/index.html",
      algorithm,
      nonce: NONCE,
      nc: "00000001",
      cnonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
      qop: "auth",
      response,
      opaque: OPAQUE,
    });
  }
});

test("a session's key is hashed once more, a hidden user is hashed, and a proxy of before 1999 gets no count", () => {
  const request = { ...MUFASA, method: "CONNECT", uri: "a:443", cnonce: "c", count: 31 };
  const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
  const session = fieldsOf(
    digestAuthorization(challengeOf('realm="r", nonce="n", qop=auth, algorithm=SHA-256-sess, userhash=true'), request)
      .value,
  );
  const key = hash(`${hash("Mufasa:r:Circle of Life")}:n:c`);
  assert.equal(session["response"], hash(`${key}:n:0000001f:c:auth:${hash("CONNECT:a:443")}`));
  assert.deepEqual([session["username"], session["userhash"]], [hash("Mufasa:r"), "true"]);
  // RFC 2069: no qop, no algorithm.
  const md5 = (text: string): string => createHash("md5").update(text).digest("hex");
  const old = fieldsOf(digestAuthorization(challengeOf('realm="r", nonce="n"'), request).value);
  assert.equal(old["response"], md5(`${md5("Mufasa:r:Circle of Life")}:n:${md5("CONNECT:a:443")}`));
  assert.deepEqual(
    [old["nc"], old["cnonce"], old["qop"], old["algorithm"]],
    [undefined, undefined, undefined, undefined],
  );
});

test("names and realms are hashed as the bytes they are, and cannot end their field", () => {
  const request = {
    user: 'J\u00e4s\u00f8n "x"\r\n',
    password: "p\u00e4ss",
    method: "CONNECT",
    uri: "a:443",
    cnonce: "c",
    count: 1,
  };
  const realm = Buffer.from('caf\u00e9 \\"bar\\"', "utf8").toString("latin1");
  const { value } = digestAuthorization(challengeOf(`realm="${realm}", nonce="n", qop="auth"`), request);
  assert.match(value, /^Digest username\*=UTF-8''J%C3%A4s%C3%B8n%20%22x%22%0D%0A, realm="caf/);
  const md5 = (text: string): string => createHash("md5").update(text).digest("hex");
  const secret = md5('J\u00e4s\u00f8n "x"\r\n:caf\u00e9 "bar":p\u00e4ss');
  assert.equal(fieldsOf(value)["response"], md5(`${secret}:n:00000001:c:auth:${md5("CONNECT:a:443")}`));
});

test("the strongest that can be computed is picked", () => {
  const offers = [
    'Digest realm=a, nonce=n, algorithm=MD5, qop="auth"',
    'Digest realm=b, nonce=n, algorithm=SHA-512, qop="auth"',
    'Digest realm=c, nonce=n, algorithm=sha-256, qop="auth,auth-int"',
    'Digest realm=d, nonce=n, algorithm=SHA-256, qop="auth-int"',
  ];
  assert.equal(DIGEST.pick(parseChallenges(offers))?.parameters.get("realm"), "c");
  offers.push("Digest realm=e, nonce=n, algorithm=SHA-512-256, qop=auth");
  assert.equal(DIGEST.pick(parseChallenges(offers))?.parameters.get("realm"), "e");
  assert.equal(DIGEST.pick(parseChallenges(["Digest realm=a", "Basic realm=x"])), undefined);
});

test("the reason why an offer cannot be answered is its algorithm or what it lacks", () => {
  const problem = (...offers: string[]) => DIGEST.whyNot?.(parseChallenges(offers));
  assert.match(
    problem("Digest realm=r, nonce=n, algorithm=SHA-1024", 'Digest realm=r, nonce=n, algorithm="SHA3-256-sess"') ?? "",
    /known here with MD5, SHA-256, SHA-512-256, and not with "SHA-1024", "SHA3-256-sess"$/,
  );
  for (const lacking of ["realm=r", "nonce=n, algorithm=MD5", "realm=r, nonce=n, qop=auth-int"]) {
    assert.match(problem(`Digest ${lacking}`) ?? "", /no realm, no nonce, or a qop without "auth"/, lacking);
  }
  const many = Array.from({ length: 99 }, (_, index) => `Digest algorithm=${"x".repeat(500)}${index}, realm=r`);
  assert.ok((problem(...many, "Digest algorithm=y, nonce=n")?.length ?? 0) < 250);
  assert.equal(problem("Basic realm=x"), undefined);
});

test("requests with one nonce are counted, and a nonce is renewed when it is called stale", async () => {
  const context = { credentials: async () => MUFASA, authority: "a:443" } as unknown as AuthContext;
  const digest = await DIGEST.begin(context);
  const counts: (string | undefined)[] = [];
  for (const nonce of ["one", "one", "two"]) {
    const { value } = await digest.authorize(challengeOf(`realm=r, nonce=${nonce}, qop="auth"`));
    counts.push(fieldsOf(value)["nc"]);
  }
  assert.deepEqual(counts, ["00000001", "00000002", "00000001"]);
  const stale = parseChallenges(["Digest realm=r, nonce=three, stale=TRUE"]);
  assert.equal(digest.next(parseChallenges(["Digest realm=r, nonce=three"])), undefined);
  assert.equal(digest.next(stale), stale[0]);
});
