import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { hugeFileAt, pipeAt } from "../../shared/documents/testing/files.ts";
import { MAX_TOKEN_BYTES } from "../../shared/http/bearer.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { AuthorityEnds, lifeStageOf } from "../../shared/tls/expiry.ts";
import { type Credentials, endOf, expiringOf, KeptCredentials, pathsOf, readCredentials } from "./credentials.ts";

/** The files of an agent, and how to write them anew. */
async function credentialFiles(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const authority = await Authority.create("ca");
  const files = {
    caCert: join(dir, "ca.crt"),
    agentCert: join(dir, "agent.crt"),
    agentKey: join(dir, "agent.key"),
    serviceAccountTokenPath: "",
    outerCa: "",
  };
  const renew = async (validity: { readonly notBefore?: Date; readonly notAfter?: Date } = {}) => {
    const { cert, key } = await authority.issue({ cn: "agent", usage: "client", ...validity });
    await Promise.all([writeFile(files.agentCert, cert), writeFile(files.agentKey, key)]);
    return { cert, key };
  };
  await writeFile(files.caCert, authority.cert);
  return { dir, files, renew, ca: authority.cert };
}

test("credential files are read again at each call; what is not given stays out", async (t) => {
  const { files, renew, ca } = await credentialFiles(t);
  for (let i = 0; i < 2; i++) {
    const renewed = await renew();
    const { notBefore, notAfter, lacksServerAuth, ...read } = readCredentials(files);
    assert.deepEqual(read, { ca, ...renewed });
    assert.equal(lacksServerAuth, true, "it is an agent's");
    assert.ok(notBefore && notBefore < new Date());
    assert.ok(notAfter && notAfter > new Date());
  }
  assert.deepEqual(readCredentials({ ...files, agentCert: "", agentKey: "" }), { ca });
});

test("a file that cannot be used is named with its flag, and never shown", async (t) => {
  const { files, renew } = await credentialFiles(t);
  const { key } = await renew();
  const sentence = (change: Partial<typeof files>): string => {
    try {
      readCredentials({ ...files, ...change });
    } catch (error) {
      return (error as Error).message;
    }
    throw new Error("they were read");
  };
  assert.match(sentence({ agentKey: "/nowhere/agent.key" }), /^--agent-key: .*\/nowhere\/agent\.key cannot be read/);
  assert.match(sentence({ caCert: files.agentKey }), /^--ca-cert: .*agent\.key holds no PEM certificate/);
  assert.match(sentence({ agentCert: files.agentKey }), /^--agent-cert: .*agent\.key holds no PEM certificate/);
  assert.match(sentence({ agentCert: files.caCert }), /^--agent-key: .*agent\.key does not belong to .*ca\.crt$/);
  using _pipe = pipeAt(`${files.caCert}.pipe`);
  hugeFileAt(`${files.caCert}.huge`);
  for (const [key, flag] of [
    ["caCert", "--ca-cert"],
    ["serviceAccountTokenPath", "--service-account-token-path"],
  ] as const) {
    const refused = (why: string) => new RegExp(`^${flag}: .* cannot be read: ${why}$`);
    assert.match(sentence({ [key]: `${files.caCert}.pipe` }), refused("it is a pipe, .*, not a regular file"));
    assert.match(sentence({ [key]: `${files.caCert}.huge` }), refused("it is larger than .*"));
  }
  assert.match(sentence({ agentKey: "" }), /^--agent-cert: .* needs its private key/);
  const secret = key.split("\n")[1] ?? assert.fail();
  for (const change of [{ caCert: files.agentKey }, { agentCert: files.agentKey }]) {
    assert.ok(!sentence(change).includes(secret));
  }
});

test("a token is read again at each call, without the line break behind it, and ends when it says so", async (t) => {
  const { dir, files } = await credentialFiles(t);
  const tokenFiles = { ...files, agentCert: "", agentKey: "", serviceAccountTokenPath: join(dir, "token") };
  const end = new Date(Math.floor(Date.now() / 1_000) * 1_000 + 600_000);
  const begin = new Date(end.getTime() - 3_600_000);
  const claims = { iat: begin.getTime() / 1_000, exp: end.getTime() / 1_000 };
  const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
  for (const [text, expiresAt, issuedAt] of [
    [`e30.${payload}.c2ln`, end, begin],
    ["opaque", undefined, undefined],
  ] as const) {
    await writeFile(tokenFiles.serviceAccountTokenPath, `${text}\n`);
    const read = readCredentials(tokenFiles);
    assert.deepEqual(read.token, { text, expiresAt, issuedAt });
    assert.deepEqual([read.cert, endOf(read)], [undefined, expiresAt]);
  }
  assert.deepEqual(pathsOf(tokenFiles), [files.caCert, tokenFiles.serviceAccountTokenPath]);
});

test("with a certificate and a token, what ends first is when both end", () => {
  const [soon, late] = [new Date(1_000), new Date(2_000)];
  assert.deepEqual(endOf({ notAfter: soon, token: { text: "t", expiresAt: late } }), soon);
  assert.deepEqual(endOf({ notAfter: late, token: { text: "t", expiresAt: soon } }), soon);
  assert.deepEqual(endOf({ notAfter: late, token: { text: "t", expiresAt: undefined } }), late);
  assert.equal(endOf({}), undefined);
});

test("a token file that cannot be one is named with its flag, and nothing of it is shown", async (t) => {
  const { dir, files } = await credentialFiles(t);
  const serviceAccountTokenPath = join(dir, "token");
  const tokenFiles = { ...files, agentCert: "", agentKey: "", serviceAccountTokenPath };
  const cases: [string | Buffer | undefined, RegExp][] = [
    [undefined, /cannot be read: there is no such file$/],
    ["", /is empty$/],
    [" \n", /is empty$/],
    ["secret secret", /holds characters that no bearer token has$/],
    ["secret\r\nX-Other: secret", /holds characters/],
    [Buffer.from("secr\u00e9t"), /holds characters/],
    ["secret".repeat(MAX_TOKEN_BYTES), /is longer than 16 KiB$/],
  ];
  for (const [content, sentence] of cases) {
    if (content !== undefined) await writeFile(serviceAccountTokenPath, content);
    assert.throws(
      () => readCredentials(tokenFiles),
      ({ message }: Error) => {
        assert.match(message, /^--service-account-token-path: the token (in )?\S+token /);
        assert.match(message, sentence);
        assert.ok(!message.includes("secr"), message);
        return true;
      },
    );
  }
  await writeFile(serviceAccountTokenPath, `${"x".repeat(MAX_TOKEN_BYTES)}\r\n`);
  assert.equal(readCredentials(tokenFiles).token?.text.length, MAX_TOKEN_BYTES);
});

const FILES = { cluster: "", caCert: "", agentCert: "", agentKey: "", serviceAccountTokenPath: "/token", outerCa: "" };
const DAY = 86_400_000;

/** The word on a token with these dates, relative to now in ms. */
function stateOf(expiresIn: number, issuedIn?: number): string | undefined {
  const now = Date.now();
  const issued = issuedIn === undefined ? {} : { issuedAt: new Date(now + issuedIn) };
  const held: Credentials = { token: { text: "a token", expiresAt: new Date(now + expiresIn), ...issued } };
  const [token] = expiringOf(FILES, held, new AuthorityEnds());
  return token === undefined ? "none" : lifeStageOf(token, new Date(now))?.state;
}

test("a token that does not say when it was made is valid until its end, and no notice is given", () => {
  assert.equal(stateOf(30 * DAY), undefined);
  assert.equal(stateOf(60_000), undefined);
  assert.equal(stateOf(-60_000), "over");
});

test("a token that says when it was made gets its notice", () => {
  assert.equal(stateOf(60_000, -DAY), "ending");
  assert.equal(stateOf(DAY, DAY / 2), "early");
});

/** An agent's credentials, what they say to the log, and how to write the files. */
async function kept(t: TestContext) {
  const { files, renew } = await credentialFiles(t);
  const lines: { readonly level: number; readonly msg: string; readonly reason?: string }[] = [];
  const log = pino({}, { write: (line) => lines.push(JSON.parse(line)) });
  const issue = async (...validity: Parameters<typeof renew>) => (await renew(...validity)).cert;
  return { credentials: new KeptCredentials(files, log), lines, issue, agentCert: files.agentCert };
}

test("while a new certificate cannot be used the old one is shown, and that is said once", async (t) => {
  const { credentials, lines, issue, agentCert } = await kept(t);
  const old = await issue();
  assert.equal(credentials.current().cert, old);
  await writeFile(agentCert, "");
  for (let attempt = 0; attempt < 5; attempt++) assert.equal(credentials.current().cert, old);
  assert.deepEqual([lines.length, lines[0]?.level], [1, 50]);
  assert.equal(lines[0]?.msg, "new credentials are not usable, the old ones stay");
  assert.match(lines[0]?.reason ?? "", /^--agent-cert: .*agent\.crt holds no PEM certificate/);
  assert.equal(credentials.refresh(), false);

  const renewed = await issue();
  assert.equal(credentials.refresh(), true);
  assert.equal(credentials.current().cert, renewed);
  await writeFile(agentCert, "");
  assert.equal(credentials.current().cert, renewed);
  assert.equal(lines.length, 2, "another fault is said again");
});

test("an old certificate that has expired is not shown: the fault of the new one is told", async (t) => {
  const { credentials, lines, issue, agentCert } = await kept(t);
  await issue({ notAfter: new Date(Math.floor(Date.now() / 1_000) * 1_000 - 60_000) });
  credentials.current();
  await writeFile(agentCert, "");
  assert.throws(() => credentials.current(), /^Error: --agent-cert: .*holds no PEM certificate/);
  assert.equal(lines[0]?.msg, "new credentials are not usable, the old ones have expired");
});

test("a new certificate that has expired already does not take the place of one that has not", async (t) => {
  const { credentials, lines, issue } = await kept(t);
  const old = await issue();
  credentials.current();
  await issue({ notAfter: new Date(Date.now() - 60_000) });
  assert.equal(credentials.refresh(), false);
  assert.equal(credentials.current().cert, old);
  assert.deepEqual([lines.length, lines[0]?.msg], [1, "new credentials are not usable, the old ones stay"]);
  assert.match(lines[0]?.reason ?? "", /^the certificate or token in the files ended on \d{4}-/);
});

test("a new certificate that is not valid yet is taken when its time comes, and not before", async (t) => {
  const { credentials, lines, issue } = await kept(t);
  const old = await issue();
  credentials.current();
  const notBefore = inSeconds(3_600);
  const early = await issue({ notBefore });
  for (let look = 0; look < 3; look++) {
    assert.equal(credentials.refresh(), false);
    assert.equal(credentials.current().cert, old);
  }
  assert.deepEqual([lines.length, lines[0]?.msg], [1, "new credentials are not usable, the old ones stay"]);
  const said = `the certificate in the files is not valid before ${notBefore.toISOString()}: from then on it is used`;
  assert.equal(lines[0]?.reason, said);

  t.mock.timers.enable({ apis: ["Date"], now: notBefore });
  assert.equal(credentials.refresh(), true);
  assert.equal(credentials.current().cert, early);
  assert.equal(lines.length, 1);
});

test("a new certificate that is not valid yet is shown where the old one is not valid either", async (t) => {
  for (const validity of [{ notAfter: inSeconds(-60) }, { notBefore: inSeconds(60) }]) {
    const { credentials, issue, agentCert } = await kept(t);
    await issue(validity);
    credentials.current();
    const early = await issue({ notBefore: inSeconds(3_600) });
    assert.equal(credentials.current().cert, early);
    await writeFile(agentCert, "");
    assert.equal(credentials.current().cert, early, "a server's clock may be ahead: it stays for want of another");
  }
});

test("files that could never be used are the caller's to tell", async (t) => {
  const { credentials, lines } = await kept(t);
  assert.throws(() => credentials.current(), /^Error: --agent-cert: .*cannot be read/);
  assert.equal(lines.length, 0);
});

/** From now, as a certificate has it: without fractions. */
function inSeconds(seconds: number): Date {
  return new Date((Math.floor(Date.now() / 1_000) + seconds) * 1_000);
}
