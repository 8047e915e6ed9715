import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { stringify } from "yaml";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { NO_TOKEN } from "../../server/tokens/token-review.ts";
import { type Answer, HttpsStub } from "../../shared/kubernetes/testing/https-stub.ts";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { startAgentProcess } from "../harness/cluster-processes.ts";
import { startFlood } from "../harness/flood.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { TempDir } from "../harness/temp.ts";
import { startTwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const FLOODER = "127.0.66.1";
const AUDIENCE = "culvert";
/** Forged tokens that are under way. */
const AT_ONCE = 100;
/** Questions that one network may cause: at once, and a second. */
const QUESTIONS = { burst: 100, perSecond: 50 };

/** An API server that knows one token, and how often it was asked about others that somebody has sent. */
async function apiServer(t: TestContext, dir: TempDir, known: string) {
  const stub = await HttpsStub.start(t);
  let asked = 0;
  stub.answer = ({ body }): Answer => {
    const { token } = (JSON.parse(body) as { spec: { token: string } }).spec;
    const authenticated = token === known;
    if (!authenticated && token !== NO_TOKEN) asked++;
    const user = { username: SUBJECT };
    return { status: 201, body: { status: authenticated ? { authenticated, user, audiences: [AUDIENCE] } : {} } };
  };
  const kubeconfig = dir.file("kubeconfig");
  const ca = Buffer.from(stub.authority.cert).toString("base64");
  const config = {
    "current-context": "here",
    contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
    clusters: [{ name: "c", cluster: { server: stub.url, "certificate-authority-data": ca } }],
    users: [{ name: "u", user: { token: "of-the-server" } }],
  };
  await writeFile(kubeconfig, stringify(config));
  const review = { kubeconfig, audience: AUDIENCE, agentNamespace: "culvert", agentServiceAccount: "agent" };
  return { stub, asked: () => asked, token: { tokenReview: review } };
}

test("one address that sends forged tokens has few of them reviewed, and keeps out no agent with a good one", async (t) => {
  using dir = new TempDir();
  const good = await (await Issuer.create()).token();
  const api = await apiServer(t, dir, good);
  await using tenants = await startTwoTenants({ red: { agents: { token: api.token } } });
  const { red, agentPort } = tenants;
  const tokenFile = dir.file("token");
  await writeFile(tokenFile, good);

  const begun = performance.now();
  await using flood = await startFlood("tokens", {
    ...{ port: agentPort, servername: red.sni, localAddress: FLOODER, connections: AT_ONCE, audience: AUDIENCE },
  });
  // A client that is answered without a review was refused one: the flood has met the bound.
  const unasked = () => Number(flood.counts["answered"]) > api.asked() + AT_ONCE;
  await waitFor(unasked, { deadlineMs: 60_000, what: "tokens that are refused without a review" });
  const env = { CULVERT_AGENT_SERVICE_ACCOUNT_TOKEN_PATH: tokenFile };
  await using agent = await startAgentProcess(red, agentPort, { env });
  assert.deepEqual(
    agent.log.filter((line) => line.includes("uplink attempt failed")),
    [],
    "its first attempt succeeds",
  );
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
  const { opened } = await flood.stop();
  const seconds = (performance.now() - begun) / 1_000;
  const most = QUESTIONS.burst + QUESTIONS.perSecond * seconds;
  t.diagnostic(`${opened} forged tokens in ${Math.round(seconds)} s, ${api.asked()} reviews`);
  assert.ok(api.asked() <= most, `${api.asked()} of ${opened} were reviewed, ${Math.round(most)} may be`);
});

test("tokens for an audience that is not ours are reviewed by nobody", async (t) => {
  using dir = new TempDir();
  const api = await apiServer(t, dir, "none");
  await using tenants = await startTwoTenants({ red: { agents: { token: api.token } } });
  const where = { port: tenants.agentPort, servername: tenants.red.sni, localAddress: FLOODER };
  await using flood = await startFlood("tokens", { ...where, connections: 10, audience: "vault" });
  await waitFor(() => Number(flood.counts["answered"]) > 100, { deadlineMs: 60_000, what: "refused tokens" });
  assert.equal(api.asked(), 0);
});

test("forged tokens ask an issuer whose keys cannot be had once in five seconds", async (t) => {
  using dir = new TempDir();
  const issuer = await HttpsStub.start(t);
  issuer.answer = () => ({ status: 500, body: "" });
  const caFile = dir.file("ca.crt");
  await writeFile(caFile, issuer.authority.cert);
  const jwt = { issuer: ISSUER, audience: AUDIENCE, jwks: `${issuer.url}/jwks`, jwksCa: caFile, subjects: [SUBJECT] };
  await using tenants = await startTwoTenants({ red: { agents: { token: { jwt } } } });
  const begun = performance.now();
  const where = { port: tenants.agentPort, servername: tenants.red.sni, localAddress: FLOODER };
  await using flood = await startFlood("tokens", { ...where, connections: 20, audience: AUDIENCE });
  await waitFor(() => Number(flood.counts["answered"]) > 300, { deadlineMs: 60_000, what: "refused tokens" });
  const most = 1 + (performance.now() - begun) / 5_000;
  t.diagnostic(`${flood.counts["answered"]} forged tokens, ${issuer.asked.length} fetches`);
  assert.ok(issuer.asked.length <= most, `${issuer.asked.length} fetches, ${most} may be`);
});

test("requests in one packet behind one whose token is verified are not read", async (t) => {
  using dir = new TempDir();
  const api = await apiServer(t, dir, "none");
  api.stub.answer = () => new Promise(() => {});
  await using tenants = await startTwoTenants({
    red: { agents: { token: api.token } },
    process: GROWTH_MEASURED,
  });
  const { red, agentPort } = tenants;
  const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
  const token = await (await Issuer.create()).token();
  const request = `GET / HTTP/1.1\r\nHost: ${red.sni}\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  await using flood = await startFlood("pipelined", {
    ...{ port: agentPort, servername: red.sni, connections: 4, request },
  });
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
  await growth.assertBounded();
  assert.ok(Number(flood.counts["bytes"]) >= 1_000_000, `${flood.counts["bytes"]} bytes were sent`);
});
