import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull } from "../harness/counts.ts";
import { requireBuilt } from "../harness/processes.ts";
import { anyOf } from "../harness/random.ts";
import { waitFor } from "../harness/wait.ts";
import { missingProgram } from "../proxies/harness/missing.ts";
import { LogFollower } from "./harness/log-follower.ts";
import { Replicas, type Way } from "./harness/replicas.ts";
import { review, WebhookCalls } from "./harness/webhook.ts";

const CONNECTS = atFull(4_000, 200, 2_000);
const KILLS = atFull(10, 3, 5);
const IN_FLIGHT = 8;
const LINES = 5;

describe("three servers beside each other, with agents at each of them", { skip: missingProgram("haproxy") }, () => {
  let replicas: Replicas;

  before(async () => {
    requireBuilt();
    replicas = await Replicas.start(["a", "b", "c"], ["blue", "green", "red"]);
  });
  after(() => replicas?.[Symbol.asyncDispose]());

  test(`${CONNECTS} CONNECTs at servers by chance reach the right cluster`, async () => {
    await runConcurrently(CONNECTS, IN_FLIGHT, async (index) => {
      const cluster = anyOf(replicas.clusters);
      await review(replicas.connect(anyOf(replicas.servers), cluster), cluster, `review ${index}`);
    });
  });

  test("servers restarted one after the other fail no webhook call, and cut no log that is read", async (t) => {
    await using ready = callsBy("ready");
    await using published = callsBy("published");
    for (const server of replicas.servers) {
      using follower = new LogFollower(await replicas.connect(server, "blue"), "blue");
      await follower.more(LINES);
      server.process.signal("SIGTERM");
      await server.process.waitForLog(/"closing"/);
      await follower.more(LINES);
      await follower.finish();
      await server.whenEnded();
      await server.start();
      await server.whenReady();
      await replicas.allBackAt(server);
    }
    for (const calls of [ready, published]) {
      t.diagnostic(JSON.stringify(await calls.finish()));
      assert.deepEqual(calls.failures, []);
    }
  });

  test(`a server killed ${KILLS} times: CONNECTs at the others succeed, and every agent comes back`, async (t) => {
    const times: number[] = [];
    for (let run = 0; run < KILLS; run++) {
      const victim = anyOf(replicas.servers);
      const living = replicas.servers.filter((server) => server !== victim);
      await using calls = new WebhookCalls(`kill ${run}`, (question) => {
        const cluster = anyOf(replicas.clusters);
        return review(replicas.connect(anyOf(living), cluster), cluster, question);
      });
      await victim.kill();
      await victim.start();
      const startedAt = performance.now();
      await replicas.allBackAt(victim);
      times.push(Math.round(performance.now() - startedAt));
      await waitFor(() => calls.made > 0);
      await calls.finish();
      assert.deepEqual(calls.failures, []);
    }
    t.diagnostic(`ms until all agents were back: ${times}`);
  });

  function callsBy(way: Way): WebhookCalls {
    return new WebhookCalls(way, (question) => review(replicas.connect(way, "blue"), "blue", question));
  }
});
