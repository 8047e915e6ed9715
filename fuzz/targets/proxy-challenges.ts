import assert from "node:assert/strict";
import { Authentication, AuthenticationFailed } from "../../shared/dial/auth/authentication.ts";
import { type Challenge, parseChallenges } from "../../shared/dial/auth/challenges.ts";
import { importKerberos } from "../../shared/dial/auth/kerberos.ts";
import { DIGEST } from "../../shared/dial/auth/password.ts";
import type { AuthContext } from "../../shared/dial/auth/scheme.ts";
import type { Target } from "../target.ts";

const CREDENTIALS = { user: "anna", password: "s3cr3t-p4ss" };
const AUTHORITY = "server.example:443";
const CONTEXT: AuthContext = {
  proxyHost: "proxy.example",
  authority: AUTHORITY,
  credentials: async () => CREDENTIALS,
  tickets: undefined,
  isUnverified: false,
  loadKerberos: importKerberos,
  signal: new AbortController().signal,
};

/** The `Proxy-Authenticate` fields of a proxy, a line for each, and our answer by any scheme. */
export const proxyChallenges: Target = {
  name: "proxy-challenges",
  maxLength: 4_096,
  seeds: [
    'Digest realm="a b", nonce="n", qop="auth,auth-int", algorithm=SHA-256, opaque="o", stale=true',
    'Digest realm="say \\"hi\\" \\\\", nonce=abc, algorithm=MD5-sess, userhash=true\nBasic realm="x"',
    'Negotiate YIIab+/c==, NTLM, Basic realm = "r", charset="UTF-8"',
    "Digest realm=r, nonce=n, algorithm=SHA-512-256, qop=auth-int, Digest realm=r, nonce=n",
  ].map((text) => Buffer.from(text, "latin1")),
  words: [
    "Digest ",
    "Basic ",
    "Negotiate ",
    'realm="',
    'nonce="',
    'qop="auth"',
    "algorithm=",
    "SHA-256-sess",
    '\\"',
    "\\\\",
    '", ',
    "\r",
    ",,",
    "=",
  ],
  async run(input) {
    const fields = input.toString("latin1").split("\n");
    const challenges = parseChallenges(fields);
    for (const { scheme } of challenges) assert.match(scheme, /^[!#$%&'*+.^_`|~0-9a-z-]+$/);
    assert.deepEqual(parseChallenges(challenges.map(formatted)), challenges);
    const picked = DIGEST.pick(challenges);
    if (picked !== undefined) await assertAnswered(picked);
    const words = [
      challenges.length > 3 ? "many" : challenges.length,
      picked?.parameters.get("algorithm")?.toLowerCase(),
    ];
    return [...words, await authenticated(fields)].join(" ");
  },
};

/** As RFC 9110 §11.3 has it written. */
function formatted({ scheme, token, parameters }: Challenge): string {
  const list = [...parameters].map(([name, value]) => `${name}=${quoted(value)}`).join(", ");
  return `${scheme} ${token ?? ""}${token === undefined || list === "" ? "" : ", "}${list}`.trimEnd();
}

function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** Our answer repeats what the proxy has said as it said it (RFC 7616 §3.4), and is one line. */
async function assertAnswered(challenge: Challenge): Promise<void> {
  const exchange = await DIGEST.begin(CONTEXT);
  const { value } = await exchange.authorize(challenge);
  assertOneField(value);
  const [answer, ...more] = parseChallenges([value]);
  assert.ok(answer !== undefined && more.length === 0 && answer.scheme === "digest", "one answer");
  for (const name of ["realm", "nonce", "opaque", "algorithm"]) {
    assert.equal(answer.parameters.get(name), challenge.parameters.get(name), name);
  }
  assert.equal(answer.parameters.get("uri"), AUTHORITY);
  assert.match(answer.parameters.get("response") ?? "", /^[0-9a-f]{32,64}$/);
}

async function authenticated(fields: readonly string[]): Promise<string> {
  const authentication = new Authentication(CONTEXT);
  try {
    const { value } = await authentication.answer(fields);
    assertOneField(value);
    return authentication.scheme?.name ?? "none";
  } catch (error) {
    if (!(error instanceof AuthenticationFailed)) throw error;
    assert.ok(!error.message.includes(CREDENTIALS.password));
    // The proxy's own words are in it: whoever shows it makes one line of it.
    assert.ok(error.message.length <= 1_000);
    return error.why;
  }
}

/** The value of a header field (RFC 9110 §5.5). */
function assertOneField(value: string): void {
  assert.match(value, /^[\t\x20-\x7e\x80-\xff]*$/, "no control characters in a header");
}
