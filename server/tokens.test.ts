import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { Authority } from "../shared/pki/certificates.ts";
import { LinkRefused } from "../shared/wire/handshake.ts";
import { within } from "./testing/server.ts";
import { agentAt, answerOf, callerAt, type Tenant, Tenants } from "./testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "./tokens/testing/tokens.ts";

/** blue takes tokens of its own issuer from agents and callers; red takes those of another. */
let tenants: Tenants;
let issuer: Issuer;
let other: Issuer;

before(async () => {
  tenants = await Tenants.create(["blue", "red"]);
  issuer = await Issuer.create();
  other = await Issuer.create("k1");
  await trust("blue", issuer);
  await trust("red", other);
  await tenants.start({ linkGraceMs: 5_000 });
});

after(() => tenants[Symbol.asyncDispose]());

async function trust(name: string, whom: Issuer): Promise<void> {
  await writeFile(join(tenants.folder, `${name}.jwks`), JSON.stringify(await whom.keySet()));
  const token = (...subjects: string[]) => ({
    jwt: { issuer: ISSUER, audience: name === "blue" ? "culvert" : `culvert-${name}`, jwks: `${name}.jwks`, subjects },
  });
  await tenants.get(name).write({
    agents: { token: token(SUBJECT) },
    callers: { token: token("system:serviceaccount:monitoring:*") },
  });
}

const CALLER = { sub: "system:serviceaccount:monitoring:prometheus" };

test("an agent without a certificate is let in by its token, and callers by theirs", async () => {
  const at = tenants.get("blue");
  const agent = await agentAt(tenants.server, "blue", { at, token: await issuer.token() });
  const asBearer = `Proxy-Authorization: Bearer ${await issuer.token(CALLER)}`;
  const asBasic = `Proxy-Authorization: Basic ${Buffer.from(`blue:${await issuer.token(CALLER)}`).toString("base64")}`;
  for (const header of [asBearer, asBasic]) assert.match(await ask(at, header), /^HTTP\/1.1 200 .*blue$/s);
  assert.ok(tenants.server.lines.some(({ msg, identity }) => msg === "tunnel opened" && identity === `SUB=${SUBJECT}`));
  agent.session.destroy();
});

async function ask(at: Tenant, header: string, by?: Parameters<typeof callerAt>[2]): Promise<string> {
  const socket = await callerAt(tenants.server, at.sni, by);
  return answerOf(socket, `CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n${header}\r\n\r\n`);
}

/** Other faults of tokens are tested with the verifiers, server/tokens/. */
const REFUSED: readonly [what: string, token: () => Promise<string>, status: number, says: RegExp][] = [
  ["for another audience", () => issuer.token({ aud: ["api"] }), 401, /is for "api", not for "culvert"/],
  ["of another cluster", () => other.token(), 401, /key|signature/],
  ["of 1 MB", async () => "x".repeat(1_048_576), 431, /header/],
];
for (const [what, token, status, says] of REFUSED) {
  test(`a token ${what} is refused, the server's sentence reaches the agent, and nothing of the token a log`, async () => {
    const { lines } = tenants.server;
    const logged = lines.length;
    const text = await token();
    const refusal = await agentAt(tenants.server, "blue", { at: tenants.get("blue"), token: text }).then(
      () => assert.fail("it was let in"),
      (error: unknown) => error,
    );
    assert.ok(refusal instanceof LinkRefused, String(refusal));
    assert.equal(refusal.status, status);
    assert.match(refusal.message, says);
    await until(() => lines.slice(logged).some(({ code, reason }) => code === status && says.test(String(reason))));
    for (const line of lines.slice(logged)) assert.ok(!JSON.stringify(line).includes(text.slice(-20)));
  });
}

test("a caller's token opens no agents' port, and an agent's no callers' port", async () => {
  const at = tenants.get("blue");
  await assert.rejects(
    agentAt(tenants.server, "blue", { at, token: await issuer.token(CALLER) }),
    /monitoring\/prometheus/,
  );
  assert.match(await ask(at, `Proxy-Authorization: Bearer ${await issuer.token()}`), /^HTTP\/1.1 407 .*culvert\/agent/);
});

test("a certificate and a token together are one credential too many, and so is a token with another cluster's name", async () => {
  const at = tenants.get("blue");
  const token = await issuer.token(CALLER);
  assert.match(await ask(at, `Proxy-Authorization: Bearer ${token}`, at.caller), /^HTTP\/1.1 407 .*send one of them/);
  const basic = Buffer.from(`red:${token}`).toString("base64");
  assert.match(await ask(at, `Proxy-Authorization: Basic ${basic}`), /^HTTP\/1.1 407 .*cluster "red"/);
});

test("a caller with a token may show a certificate of another CA", async () => {
  const at = tenants.get("blue");
  const mesh = await Authority.create("mesh");
  const foreign = await mesh.issue({ cn: "spiffe", usage: "client" });
  const answer = await ask(at, `Proxy-Authorization: Bearer ${await issuer.token(CALLER)}`, foreign);
  assert.match(answer, /^HTTP\/1.1 503 .*no agent/);
});

test("whoever brings neither reads about both", async () => {
  const at = tenants.get("blue");
  const refused = /^HTTP\/1.1 407 .*no token \(Proxy-Authorization: Bearer\)\r\nProxy-Authenticate: Bearer /;
  assert.match(await ask(at, "X-Nothing: 1"), refused);
  const get = await callerAt(tenants.server, at.sni, undefined);
  assert.match(await answerOf(get, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), refused);
  await assert.rejects(agentAt(tenants.server, "blue", { at }), /no token \(--service-account-token-path\)/);
});

test("a key that is withdrawn ends the tunnels that stood on it, and no others", async () => {
  const at = tenants.get("blue");
  const ofRed = await other.token({ aud: ["culvert-red"] });
  const red = await agentAt(tenants.server, "red", { at: tenants.get("red"), token: ofRed });
  const blue = await agentAt(tenants.server, "blue", { at, agentId: "z", token: await issuer.token() });
  const rotated = new Promise<void>((resolve) => {
    blue.link.watch({ onControl: ({ type }) => type === "rotate" && resolve() });
  });
  await at.write({ agents: { identities: ["O=agents:blue"] } });
  await within(rotated, "the agent is asked to prove itself anew");
  await assert.rejects(
    agentAt(tenants.server, "blue", { at, agentId: "b", token: await issuer.token() }),
    /certificate/,
  );
  assert.equal(red.session.closed, false);
  for (const { session } of [red, blue]) session.destroy();
});
