import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { listening, until } from "../../shared/basics/testing/wait.ts";
import { agentOf, start } from "../testing/server.ts";
import { OtherPages } from "./other-pages.ts";

test("a server tells the pages of others what it has, and is left out of its own", async (t) => {
  await using server = await start({ serverId: "srv-2" });
  await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  const { port } = server.addresses.admin ?? assert.fail();
  const wrong = await listening(
    t,
    createServer((_request, response) => void response.writeHead(421).end()),
  );
  const addresses = [`127.0.0.1:${port}`, `127.0.0.1:${wrong}`, "127.0.0.1:1"];
  const others = new OtherPages(addresses, "mine");
  await until(() => others.facts().length === 3);
  const [found, refused, absent] = addresses.map((each) => others.facts().find(({ address }) => address === each));
  const { version: _, ...shown } = (found ?? {}) as Record<string, unknown>;
  const counts = { clusters: 1, agents: 1, open: 0, bytesPerSecond: 0 };
  assert.deepEqual(shown, { address: addresses[0], serverId: "srv-2", draining: false, ...counts });
  assert.match(JSON.stringify(refused), /HTTP 421 for \/ui\/summary: give the name in --admin-allowed-hosts there/);
  assert.match(JSON.stringify(absent), /ECONNREFUSED/);
  assert.deepEqual(others.withAgentsOf("default"), [{ serverId: "srv-2", agents: 1 }]);
  assert.deepEqual(others.withAgentsOf("other"), []);

  const { instance } = (await (await fetch(`http://127.0.0.1:${port}/ui/summary`)).json()) as { instance: string };
  const own = new OtherPages(addresses, instance);
  await until(() => own.facts().length === 2);
  assert.deepEqual(own.withAgentsOf("default"), []);
});

test("others are asked once in five seconds, however often somebody looks, and not at all before", async (t) => {
  let asked = 0;
  const server = createServer((_request, response) => {
    asked++;
    response.end("{}");
  });
  const others = new OtherPages([`127.0.0.1:${await listening(t, server)}`], "mine");
  for (const now of [0, 1_000, 4_999]) others.facts(now);
  await until(() => others.facts(4_999).length === 1);
  assert.equal(asked, 1);
  assert.match(JSON.stringify(others.facts(4_999)), /its answer has another form/);
  others.facts(5_000);
  await until(() => asked === 2);
});
