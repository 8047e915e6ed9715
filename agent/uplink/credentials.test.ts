import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { hugeFileAt, pipeAt } from "../../shared/documents/testing-files.ts";
import { MAX_TOKEN_BYTES } from "../../shared/http/bearer.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { endOf, pathsOf, readCredentials } from "./credentials.ts";

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
  };
  const renew = async () => {
    const { cert, key } = await authority.issue({ cn: "agent", usage: "client" });
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
