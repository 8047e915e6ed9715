import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { numbered } from "../harness/cluster-files.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull } from "../harness/counts.ts";
import { requireBuilt } from "../harness/processes.ts";
import { anyOf } from "../harness/random.ts";
import { scrapePort } from "../harness/scrape.ts";
import { waitFor } from "../harness/wait.ts";
import { missingProgram } from "../proxies/harness/missing.ts";
import { DirectoryFleet } from "./harness/directory-fleet.ts";
import type { ServerSlot } from "./harness/server-slot.ts";
import { review } from "./harness/webhook.ts";

const CLUSTERS = atFull(300, 30);
/** Their agents are moved by the tests. */
const MOVERS = numbered("mover", 5);
const AT_ONCE = 16;
const CALLS = 10;
const PATIENCE_MS = 60_000;
/** Answers that a server may give while a cluster cannot be reached. */
const TRUTHFUL = /^50[234] /;

interface ReviewAll {
  readonly mayFail?: boolean;
  readonly at?: "balancer" | undefined;
}

const skip = missingProgram("haproxy") || missingProgram("nats-server");

describe(`five servers that find ${CLUSTERS} clusters by NATS, with each agent at one of them`, { skip }, () => {
  let fleet: DirectoryFleet;
  const clusters = [...numbered("blue", CLUSTERS), ...MOVERS];

  before(async () => {
    requireBuilt();
    const serverNames = ["a", "b", "c", "d", "e"];
    fleet = await DirectoryFleet.start({ serverNames, clusterNames: clusters, natsServers: 3 });
  });
  after(() => fleet?.[Symbol.asyncDispose]());

  test("CONNECTs at any server reach their cluster", async () => {
    await runConcurrently(3 * clusters.length, AT_ONCE, async (index) => {
      const cluster = clusters[index % clusters.length] ?? "";
      await reviewAt(anyOf(fleet.servers), cluster);
    });
  });

  test("an agent that has moved to another server is found there at once, whatever was remembered", async () => {
    const [a, b, c] = [fleet.server("a"), fleet.server("b"), fleet.server("c")];
    await Promise.all(
      MOVERS.map(async (cluster) => {
        await fleet.startAgent(cluster, a);
        await reviewAt(c, cluster);
        await fleet.startAgent(cluster, b);
        await reviewAt(c, cluster);
        await fleet.startAgent(cluster); // wherever the balancer leads it
      }),
    );
  });

  test("a server is killed: what its clusters are told is true, and soon after their agents are back all is well", async (t) => {
    const victim = fleet.server("b");
    await victim.kill();
    await reviewAll("while agents look for another server");
    await fleet.whenAgentsAreBack();
    t.diagnostic(`whole again in ${await wholeAgain()} ms`);
    await victim.start();
    await victim.whenReady();
    await reviewAll("with a new process in its place", { mayFail: false });
  });

  test("callers at the balancer: a killed server costs nothing where agents are elsewhere, and its own clusters are back with their agents", async (t) => {
    const [b, c, d] = [fleet.server("b"), fleet.server("c"), fleet.server("d")];
    const [ofB = "", ofC = "", ofD = ""] = MOVERS;
    await Promise.all([fleet.startAgent(ofB, b), fleet.startAgent(ofC, c), fleet.startAgent(ofD, d)]);
    await runConcurrently(clusters.length, AT_ONCE, (index) => reviewAt("balancer", clusters[index] ?? ""));
    await b.kill();
    for (let call = 0; call < CALLS; call++) {
      await Promise.all([reviewAt("balancer", ofC), reviewAt("balancer", ofD)]);
    }
    await fleet.startAgent(ofB); // wherever the balancer leads it
    await fleet.whenAgentsAreBack();
    t.diagnostic(`whole again in ${await wholeAgain("balancer")} ms`);
    await b.start();
    await b.whenReady();
  });

  test("a NATS server is killed", async (t) => {
    await fleet.nats.kill(0);
    t.diagnostic(`whole again in ${await wholeAgain()} ms`);
    await fleet.nats.start(0);
    await reviewAll("with a new process in its place", { mayFail: false });
  });

  test("peers do not reach one server: clusters with an agent elsewhere notice nothing, and the others are told", async (t) => {
    const [a, c, d] = [fleet.server("a"), fleet.server("c"), fleet.server("d")];
    const [cluster = ""] = MOVERS;
    await fleet.startAgent(cluster, a);
    await fleet.startAgent(cluster, c, "second");
    await reviewAt(d, cluster);
    await fleet.relay.unplug();
    for (let call = 0; call < CALLS; call++) await reviewAt(d, cluster);
    const failed = await reviewAll("while peers cannot connect to one server");
    assert.ok(failed.length > 0, "nobody had to connect to it");
    await fleet.relay.plug();
    t.diagnostic(`whole again in ${await wholeAgain()} ms`);

    fleet.relay.drop();
    await Promise.all(Array.from({ length: CALLS }, () => reviewAt(d, cluster)));
    fleet.relay.restore();
    t.diagnostic(`after a silence whole again in ${await wholeAgain()} ms`);
    fleet.stopAgent(cluster, "second");
    await fleet.startAgent(cluster);
  });

  test("the path between two servers is cut: who needs it reads so, and everybody else notices nothing", async (t) => {
    const [a, b, c, d] = [fleet.server("a"), fleet.server("b"), fleet.server("c"), fleet.server("d")];
    const [ofA = "", ofB = "", ofBoth = "", ofD = ""] = MOVERS;
    await Promise.all([fleet.startAgent(ofA, a), fleet.startAgent(ofB, b), fleet.startAgent(ofD, d)]);
    await Promise.all([fleet.startAgent(ofBoth, b), fleet.startAgent(ofBoth, c, "second")]);
    // Server a has forgotten where ofBoth was before: its one retry is for the path that is cut now.
    await Promise.all([reviewAt(a, ofB), reviewAt(b, ofA), reviewAt(a, ofBoth)]);
    assert.ok(Math.min(...fleet.between.open) > 0, "both have a link to the other over that path");

    fleet.between.drop();
    const unhurt = [
      ...[reviewAt(c, ofA), reviewAt(c, ofB), reviewAt(a, ofD), reviewAt(b, ofD), reviewAt(a, ofA), reviewAt(b, ofB)],
      ...Array.from({ length: CALLS }, () => reviewAt(a, ofBoth)),
    ];
    await Promise.all([readsOf(a, ofB, b), readsOf(b, ofA, a), ...unhurt]);
    await Promise.all([
      readsOf(a, ofB, b),
      readsOf(b, ofA, a),
      reviewAt(c, ofB),
      reviewAt(a, ofD),
      reviewAt(a, ofBoth),
    ]);
    fleet.between.restore();
    const ms = await Promise.all([reachedAgain(a, ofB), reachedAgain(b, ofA)]);
    t.diagnostic(`reached again in ${ms} ms`);
  });

  test("all NATS servers are killed: what was found before is found still, and what has moved since says so", async (t) => {
    const [a, b, c] = [fleet.server("a"), fleet.server("b"), fleet.server("c")];
    const [stays = "", moves = ""] = MOVERS;
    await Promise.all([fleet.startAgent(stays, a), fleet.startAgent(moves, a)]);
    await Promise.all([reviewAt(c, stays), reviewAt(c, moves)]);
    await Promise.all(fleet.nats.urls().map((_, at) => fleet.nats.kill(at)));
    const ofC = async (name: string, labels: Readonly<Record<string, string>>) =>
      (await scrapePort(c.healthPort)).sum(name, labels);
    await waitFor(async () => (await ofC("culvert_server_directory_up", {})) === 0, { deadlineMs: PATIENCE_MS });
    const asked = () => ofC("culvert_server_directory_questions_total", { result: "down" });
    const before = await asked();
    for (let begun = performance.now(); (await asked()) === before; ) {
      await reviewAt(c, stays);
      assert.ok(performance.now() - begun < PATIENCE_MS, "the answer is used without a question");
    }
    for (let call = 0; call < CALLS; call++) await reviewAt(c, stays);
    await fleet.startAgent(moves, b);
    const wrong = () => ofC("culvert_server_hops_total", { outcome: "no_agent" });
    const wrongBefore = await wrong();
    const connection = await fleet.connect(c, moves);
    connection.socket.destroy();
    const sentence = /^503 no agent of cluster "mover-2" .*; .* the directory is not reachable$/;
    assert.match(`${connection.status} ${connection.reason}`, sentence);
    assert.equal((await wrong()) - wrongBefore, 1, "the server where they were has said it");
    await Promise.all(fleet.nats.urls().map((_, at) => fleet.nats.start(at)));
    t.diagnostic(`whole again in ${await wholeAgain()} ms`);
  });

  /** A CONNECT at `at` fails, and what is read names both ends of the path to the server with the agent. */
  async function readsOf(at: ServerSlot, cluster: string, holder: ServerSlot): Promise<void> {
    await using connection = await fleet.connect(at, cluster);
    assert.equal(connection.status, 502);
    assert.match(connection.reason, new RegExp(`server "${holder.name}".* server "${at.name}"`));
    const details = connection.reason.replaceAll('"', "'");
    assert.equal(connection.headers.get("proxy-status"), `culvert; error=connection_terminated; details="${details}"`);
  }

  /** Resolves when a CONNECT succeeds, with the time until then, ms. */
  async function reachedAgain(at: ServerSlot, cluster: string): Promise<number> {
    const begun = performance.now();
    await waitFor(() => reviewAt(at, cluster).then(() => true), {
      deadlineMs: PATIENCE_MS,
      what: `${cluster} at ${at.name}`,
    });
    const ms = Math.round(performance.now() - begun);
    return ms;
  }

  /** One CONNECT for each cluster, at any server or at the balancer. */
  async function reviewAll(when: string, { mayFail = true, at }: ReviewAll = {}): Promise<string[]> {
    const failed: string[] = [];
    await runConcurrently(clusters.length, AT_ONCE, async (index) => {
      const cluster = clusters[index] ?? "";
      await reviewAt(at ?? anyOf(fleet.running), cluster).catch((error: Error) => {
        // No answer at all is a failure of the path. A wrong status and a wrong answer never are.
        if (error instanceof assert.AssertionError && error.actual !== "") throw error;
        assert.ok(mayFail, `${when}, ${cluster}: ${error.message}`);
        failed.push(cluster);
      });
    });
    return failed;
  }

  /** Resolves when a CONNECT for each cluster has succeeded, with the time until the last failure, ms. */
  async function wholeAgain(at?: "balancer"): Promise<number> {
    const begun = performance.now();
    let lastFailureMs = 0;
    let failed = await reviewAll("after the fault", { at });
    while (failed.length > 0) {
      assert.ok(performance.now() - begun < PATIENCE_MS, `${failed} are not reached`);
      lastFailureMs = performance.now() - begun;
      failed = await reviewAll("after the fault", { at });
    }
    return Math.round(lastFailureMs);
  }

  async function reviewAt(at: ServerSlot | "balancer", cluster: string): Promise<void> {
    const connection = await fleet.connect(at, cluster);
    const name = at === "balancer" ? at : at.name;
    if (connection.status !== 200) {
      connection.socket.destroy();
      const said = `${connection.status} ${connection.reason}`;
      assert.match(said, TRUTHFUL);
      throw new Error(`at ${name}: ${said}`);
    }
    await review(Promise.resolve(connection), cluster, `review at ${name}`);
  }
});
