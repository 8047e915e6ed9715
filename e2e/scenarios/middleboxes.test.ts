import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BehindMiddlebox } from "../harness/behind-middlebox.ts";
import type { MiddleboxBehaviour } from "../harness/middlebox.ts";
import { closeFrames, holdsBack, Rewriter, type Rewriting } from "../harness/middlebox-behaviour.ts";
import { Random, seedOfRun } from "../harness/random.ts";
import { waitFor } from "../harness/wait.ts";

// Faults of middleboxes in an open WebSocket: streams notice nothing, and the agent reports what it has found.

const REWRITING: Readonly<Record<string, Rewriting>> = {
  "masks anew": { mask: "random" },
  "masks with zeros": { mask: "zero" },
  "cuts messages into fragments of odd sizes": { mask: "random", fragments: true },
  "makes one message of several": { mask: "random", coalesces: true },
  "cuts what it writes at any byte": { mask: "random", pieces: true },
  "sends pings and pongs of its own before each frame": { mask: "random", pings: 3 },
  "does all of that at once": { mask: "random", fragments: true, coalesces: true, pings: 2, pieces: true },
};

for (const [what, rewriting] of Object.entries(REWRITING)) {
  for (const innerTls of [true, false]) {
    test(`a middlebox that ${what} harms no stream, ${innerTls ? "with" : "without"} inner TLS`, async (t) => {
      const seed = seedOfRun();
      t.diagnostic(`seed ${seed}`);
      const rewriters: Rewriter[] = [];
      const habit = () => {
        const made = new Rewriter(new Random(seed), rewriting);
        rewriters.push(made);
        return made;
      };
      const behind = await BehindMiddlebox.start(t, { innerTls, habit });
      await behind.startAgent();
      await behind.transfers(6, 1_000_000);
      const { made, answered } = rewriters.at(-1) as Rewriter;
      assert.ok(made > 100, `${made} frames are too few to prove anything`);
      if (rewriting.pings !== undefined) assert.ok(answered > 0, "pings are answered");
      assertNothingLost(behind);
    });
  }
}

test("thousands of pings in one read cost neither connection nor memory, and streams go on", async (t) => {
  const behind = await BehindMiddlebox.start(t);
  await behind.startAgent();
  const { near, far } = behind.box.opened.at(-1) ?? {};
  assert.ok(near && far);
  const pings = (mask: readonly number[]) => {
    const one = Buffer.from([0x89, mask.length > 0 ? 0x84 : 0x04, ...mask, ...Buffer.from("ping")]);
    return Buffer.concat(Array.from({ length: 20_000 }, () => one));
  };
  // Between two frames: nothing else is sent while nobody uses the tunnel.
  near.write(pings([]));
  far.write(pings([0, 0, 0, 0]));
  await behind.transfers(4, 1_000_000);
  assertNothingLost(behind);
});

for (const code of [1000, 1001, 1002, 1008, 1009, 1011]) {
  test(`a middlebox that closes every connection with ${code} now and then ends no stream`, async (t) => {
    const behind = await BehindMiddlebox.start(t);
    const agent = await behind.startAgent();
    await using connection = await behind.world.connect("echo");
    const echo = async (text: string) => {
      await connection.send(text);
      assert.equal(await connection.read(), text);
    };
    await echo("before");
    for (let time = 1; time <= 3; time++) {
      const { near, far } = behind.box.opened.at(-1) ?? {};
      near?.write(closeFrames(code).toAgent);
      far?.write(closeFrames(code).toServer);
      await waitFor(() => behind.said("uplink resumed").length === time, { deadlineMs: 10_000 });
      await echo(`after ${time}`);
    }
    const [line] = behind.said("uplink suspended");
    assert.equal(line?.["reason"], `the peer closed with ${code}`);
    assert.equal(behind.said("tunnel opened").length, 1);
    const scrape = await behind.scrape();
    assert.equal(scrape.value("culvert_agent_link_suspensions_total", { cause: "closed" }), 3);
    // The end that both ends mean is one still.
    connection.socket.destroy();
    await agent.close();
    await waitFor(() => behind.said("tunnel closed").length === 1);
  });
}

test("a middlebox that cuts each connection over what one stream sends costs that link, and not the cluster", async (t) => {
  const DISLIKED = "what a box does not like";
  const habit = (): MiddleboxBehaviour => ({
    fromAgent: (bytes, { toServer }) => toServer(bytes),
    fromServer: (bytes, { toAgent, toServer }) => {
      if (bytes.includes(DISLIKED)) {
        toAgent(closeFrames(1008).toAgent);
        toServer(closeFrames(1008).toServer);
      } else toAgent(bytes);
    },
  });
  const behind = await BehindMiddlebox.start(t, { innerTls: false, habit });
  await behind.startAgent();
  await using connection = await behind.world.connect("echo");
  await connection.send(DISLIKED);
  const lost = await waitFor(() => behind.said("uplink lost")[0], { deadlineMs: 30_000 });
  assert.match(
    String(lost["reason"]),
    / 8 connections in a row were cut over what was to be sent again: the peer closed with 1008$/,
  );
  await waitFor(() => behind.said("tunnel opened").length === 2, { deadlineMs: 10_000 });
  await behind.transfers(2, 100_000);
});

// Each waits for what takes its time; none has much to do.
describe("what an agent finds out of its path", { concurrency: true }, () => {
  for (const innerTls of [true, false]) {
    test(`with pings that come sooner than a middlebox cuts what is silent, no connection is cut, ${innerTls ? "with" : "without"} inner TLS`, async (t) => {
      const IDLE_MS = 1_500;
      const behind = await BehindMiddlebox.start(t, {
        innerTls,
        server: { keepaliveMs: 30_000 },
        agent: { keepaliveMs: IDLE_MS / 5 },
      });
      await behind.startAgent();
      await using connection = await behind.world.connect("echo");
      const cuts = cutsIdle(behind, IDLE_MS);
      t.after(() => cuts.stop());
      const now = performance.now();
      await waitFor(() => performance.now() - now > 4 * IDLE_MS, { deadlineMs: 5 * IDLE_MS });
      assert.deepEqual([cuts.count(), behind.box.opened.length], [0, 1]);
      await connection.send("still here");
      assert.equal(await connection.read(), "still here");
      assert.equal(behind.said("path learned").length, 0);
    });
  }

  test("a middlebox that cuts what is old is found out, and from then on each connection is replaced before", async (t) => {
    const AGE_MS = 5_500;
    const lively = { keepaliveMs: 1_000 };
    const behind = await BehindMiddlebox.start(t, { server: lively, agent: lively });
    await behind.startAgent();
    await using connection = await behind.world.connect("echo");
    let cuts = 0;
    const born = new Map<object, number>();
    const timer = setInterval(() => {
      for (const opened of behind.box.opened.filter(({ near }) => !near.destroyed)) {
        const at = born.get(opened) ?? performance.now();
        born.set(opened, at);
        if (performance.now() - at < AGE_MS) continue;
        cuts++;
        opened.near.destroy();
        opened.far.destroy();
      }
    }, 20);
    t.after(() => clearInterval(timer));
    const learned = await waitFor(() => behind.said("path learned")[0], { deadlineMs: 40_000 });
    assert.equal(learned["lesson"], "age_limit");
    assert.match(
      String(learned["reason"]),
      /^this path cuts connections that are older than 5(?:\.\d)? s: each is now replaced/,
    );
    const before = cuts;
    await waitFor(() => behind.said("uplink moved to a new connection").length >= 2, { deadlineMs: 40_000 });
    assert.equal(cuts, before, "no cut since");
    await connection.send("still here");
    assert.equal(await connection.read(), "still here");
    const scrape = await behind.scrape();
    assert.ok(scrape.sum("culvert_agent_path_age_limit_seconds", {}) >= 5);
    assert.equal(scrape.value("culvert_agent_path_lessons_total", { lesson: "age_limit" }), 1);
  });

  test("a middlebox that holds all bytes for a while is named, and streams arrive whole, only late", async (t) => {
    const HELD_MS = 600; // a ping and its answer, each no less
    const keepalive = { keepaliveMs: 1_500 };
    const habit = () => holdsBack("both", { forMs: HELD_MS, bytes: 32 * 1024 });
    const behind = await BehindMiddlebox.start(t, { innerTls: false, habit, server: keepalive, agent: keepalive });
    await behind.startAgent();
    await behind.transfers(2, 40_000);
    const learned = await waitFor(() => behind.said("path learned")[0], { deadlineMs: 30_000 });
    assert.equal(learned["lesson"], "held_back");
    assert.match(
      String(learned["reason"]),
      /^this path holds bytes back, answers to pings for [1-9]\d*(?:\.\d)? s: .* must not buffer/,
    );
    const scrape = await behind.scrape();
    assert.ok(scrape.sum("culvert_agent_path_held_back_seconds", {}) >= 1);
    assertNothingLost(behind);
    await behind.transfers(2, 40_000);
  });

  test("a middlebox that passes nothing on any more, to old connections and new ones, is named, and no stream ends", async (t) => {
    const hasty = { keepaliveMs: 300, handshakeTimeoutMs: 1_000, syncIntervalMs: 20 };
    let stuck = false;
    // Bytes that it has taken while it was stuck are lost, and all bytes behind them.
    const habit = (): MiddleboxBehaviour => {
      const lost = { up: false, down: false };
      const isLost = (way: "up" | "down", bytes: Buffer) => {
        lost[way] ||= stuck && !bytes.toString("latin1").startsWith("HTTP/1.1 101");
        return lost[way];
      };
      return {
        fromAgent: (bytes, { toServer }) => {
          // The request passes, so that an upgrade is answered.
          if (bytes.subarray(0, 4).toString() === "GET " || !isLost("up", bytes)) toServer(bytes);
        },
        fromServer: (bytes, { toAgent }) => {
          if (!isLost("down", bytes)) toAgent(bytes);
        },
      };
    };
    const behind = await BehindMiddlebox.start(t, {
      innerTls: false,
      habit,
      server: { keepaliveMs: 300 },
      agent: hasty,
    });
    await behind.startAgent();
    await using connection = await behind.world.connect("echo");
    stuck = true;
    await connection.send("in the box");
    const failed = await waitFor(() => behind.said("uplink not resumed")[0], { deadlineMs: 20_000 });
    assert.match(
      String(failed["reason"]),
      /waiting for welcome: the upgrade was answered, .* holds bytes back, and must not buffer/,
    );
    assert.equal(behind.said("uplink suspended")[0]?.["cause"], "silent");
    stuck = false;
    await waitFor(() => behind.said("uplink resumed").length > 0, { deadlineMs: 20_000 });
    assert.equal(await connection.read(), "in the box");
    const scrape = await behind.scrape();
    assert.ok(scrape.sum("culvert_agent_link_resumes_total", { result: "held_back" }) > 0);
    assert.equal(behind.said("tunnel opened").length, 1);
  });
});

/** Ends connections on which nothing has come from the server's side for this time. */
function cutsIdle(behind: BehindMiddlebox, idleMs: number): { count(): number; stop(): void } {
  let count = 0;
  const heard = new Map<object, { length: number; at: number }>();
  const timer = setInterval(() => {
    for (const opened of behind.box.opened.filter(({ near }) => !near.destroyed)) {
      const { length } = opened.answered;
      const before = heard.get(opened);
      if (before?.length !== length) heard.set(opened, { length, at: performance.now() });
      else if (performance.now() - before.at > idleMs) {
        opened.near.end();
        opened.far.end();
        heard.delete(opened);
        if (!opened.near.writableFinished) count++;
      }
    }
  }, 20);
  return { count: () => count, stop: () => clearInterval(timer) };
}

/** One tunnel from the first to the last, and no connection of it ended. */
function assertNothingLost(behind: BehindMiddlebox): void {
  for (const msg of ["uplink suspended", "uplink lost", "tunnel suspended", "tunnel lost", "tunnel closed"]) {
    assert.deepEqual(behind.said(msg), [], msg);
  }
  assert.equal(behind.said("tunnel opened").length, 1);
}
