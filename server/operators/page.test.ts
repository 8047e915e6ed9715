import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { agentOf, start, type TestServer } from "../testing/server.ts";

async function ask(server: TestServer, path: string, headers: Record<string, string> = {}): Promise<IncomingMessage> {
  const at = { host: "127.0.0.1", port: server.addresses.admin?.port, path, headers, agent: false };
  const [response] = await once(get(at), "response");
  return response as IncomingMessage;
}

/** The facts that a reader of the page has got so far. */
async function factsOf(server: TestServer, query = "") {
  const response = await ask(server, `/ui/events${query}`);
  const facts: Record<string, Record<string, unknown>> = {};
  let rest = "";
  response.on("data", (chunk: Buffer) => {
    const events = (rest + chunk).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) Object.assign(facts, JSON.parse(event.slice(event.indexOf("data: ") + 6)));
  });
  return { facts, response };
}

test("a reader sees the clusters, and the agents of the one that it looks at, and no agent is pinged for it", async () => {
  await using server = await start();
  const agent = await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  const [tunnel] = server.tunnels.tunnels();
  assert.ok(tunnel);
  let pings = 0;
  Object.defineProperty(tunnel, "roundTrip", { value: () => Promise.resolve(pings++) });
  const { facts, response } = await factsOf(server, "?cluster=default");
  const key = `agent/${tunnel.id}`;
  await until(() => facts[key] !== undefined);
  const { state, agents } = facts["cluster/default"] ?? {};
  assert.deepEqual([state, agents, facts[key]?.["agent"], pings], ["ok", 1, "a", 0]);
  agent.session.destroy();
  await until(() => facts["cluster/default"]?.["state"] === "no_agent");
  await until(() => facts[key] === null);
  response.destroy();
});

test("the page's files forbid what is not ours, and a Host of another site gets none of it", async () => {
  await using server = await start();
  for (const path of ["/ui/", "/ui/events", "/ui/main.js"]) {
    const refused = await ask(server, path, { host: "evil.example" });
    assert.equal(refused.statusCode, 421, path);
    refused.resume();
  }
  const { headers } = (await ask(server, "/ui/")).resume();
  const policy = String(headers["content-security-policy"]);
  assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';.*frame-ancestors 'none'$/);
  assert.doesNotMatch(policy, /unsafe/);
  const outside = await ask(server, "/ui/../../package.json");
  assert.ok([403, 404].includes(outside.statusCode ?? 0));
  assert.doesNotMatch(await text(outside), /culvert-gateway/);
});

test("a check is taken from a request that no other site's page can send", async () => {
  await using server = await start();
  const at = { host: "127.0.0.1", port: server.addresses.admin?.port, path: "/ui/check", method: "POST", agent: false };
  const asking = request({ ...at, headers: { "content-type": "text/plain" } });
  asking.end(JSON.stringify({ cluster: "default", target: "10.0.0.1:1" }));
  const [response] = await once(asking, "response");
  assert.equal(response.resume().statusCode, 415);
});

test("without --admin-ui there is no page", async () => {
  await using server = await start({ adminUi: false });
  const response = await ask(server, "/ui/");
  assert.equal(response.statusCode, 404);
  assert.doesNotMatch(await text(response), /\/ui/);
});
