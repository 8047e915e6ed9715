import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { Writable } from "node:stream";
import { type TestContext, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { until } from "../../shared/basics/testing/wait.ts";
import { Feed } from "./feed.ts";

/** A reader that keeps what it gets, as long as it is not stuck. */
class Reader extends Writable {
  readonly messages: string[] = [];
  isStuck = false;
  #taken: () => void = () => {};

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.messages.push(String(chunk));
    this.emit("written");
    if (this.isStuck) this.#taken = done;
    else done();
  }

  goOn(): void {
    this.isStuck = false;
    this.#taken();
  }

  get last(): { readonly event: string; readonly facts: object } {
    const [, event = "", data = ""] = /^event: (\w+)\ndata: (.*)\n\n$/s.exec(this.messages.at(-1) ?? "") ?? [];
    return { event, facts: JSON.parse(data) };
  }
}

/** A feed whose seconds are the test's, of facts that the test changes. */
function feedOf(t: TestContext) {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const all = new Map<string, unknown>([["server", 1]]);
  let walks = 0;
  let stops = 0;
  const looked: string[] = [];
  const ofCluster = new Map<string, unknown>();
  const feed = new Feed({
    all: () => {
      walks++;
      return all;
    },
    stop: () => stops++,
    ofCluster: (name) => {
      looked.push(name);
      return [["detail", name], ...ofCluster];
    },
  });
  let joined = 0;
  const join = (cluster = "") => {
    joined++;
    const reader = new Reader({ highWaterMark: 1 });
    feed.add(reader as unknown as ServerResponse, cluster);
    return reader;
  };
  /** After a message the feed takes a turn for each reader. */
  const rested = async () => {
    for (let turn = 0; turn <= joined; turn++) await nextTurn();
  };
  const second = async (...readers: Reader[]) => {
    await rested();
    const before = readers.map(({ messages }) => messages.length);
    t.mock.timers.tick(1_000);
    await until(() => readers.every(({ messages }, index) => messages.length > (before[index] ?? 0)));
    await rested();
  };
  return { feed, all, ofCluster, join, second, looked, walks: () => walks, stops: () => stops };
}

test("a reader gets all facts and then the changes, and one message for all readers in a second", async (t) => {
  const { all, join, second, walks } = feedOf(t);
  const first = join();
  await until(() => first.messages.length === 2);
  assert.deepEqual(first.last, { event: "changes", facts: { server: 1 } });
  const next = join();
  assert.deepEqual(next.last, { event: "all", facts: { server: 1 } });
  all.set("cluster/a", { open: 1 }).set("server", undefined);
  assert.equal(walks(), 1, "a second reader costs no look");
  await second(first, next);
  assert.equal(walks(), 2);
  assert.deepEqual(first.last, { event: "changes", facts: { "cluster/a": { open: 1 }, server: null } });
  assert.equal(first.messages.at(-1), next.messages.at(-1));
  await second(first, next);
  assert.deepEqual(first.last, { event: "changes", facts: {} });
});

test("only readers of a cluster get its details, and nothing is looked at when the last reader has gone", async (t) => {
  const { feed, join, second, looked, walks, stops } = feedOf(t);
  const [list, blue] = [join(), join("blue")];
  await until(() => list.messages.length === 2);
  await second(list, blue);
  assert.deepEqual(looked.slice(-1), ["blue"]);
  assert.match(blue.messages.join(""), /"detail":"blue"/);
  assert.doesNotMatch(list.messages.join(""), /detail/);
  for (const reader of [list, blue]) reader.destroy();
  await until(() => feed.readers === 0);
  const before = walks();
  t.mock.timers.tick(1_000);
  assert.deepEqual([walks(), stops()], [before, 1]);
});

test("a fact that was not looked at stays, and is no news", async (t) => {
  const { all, join, second } = feedOf(t);
  const reader = join();
  await until(() => reader.messages.length === 2);
  all.delete("server");
  all.set("cluster/a", { open: 1 });
  await second(reader);
  assert.deepEqual(reader.last, { event: "changes", facts: { "cluster/a": { open: 1 } } });
  assert.deepEqual(join().last.facts, { server: 1, "cluster/a": { open: 1 } });
});

test("a fact of a cluster that is missing in the next answer is gone", async (t) => {
  const { ofCluster, join, second } = feedOf(t);
  ofCluster.set("agent/1", { streams: 2 });
  const reader = join("blue");
  await until(() => reader.messages.length === 2);
  ofCluster.delete("agent/1");
  await second(reader);
  assert.deepEqual(reader.last, { event: "changes", facts: { "agent/1": null } });
});

test("a reader that is slow misses messages, which nobody keeps for it, and then gets all facts", async (t) => {
  const { all, join, second } = feedOf(t);
  const [quick, slow] = [join(), join()];
  await until(() => quick.messages.length === 2);
  slow.isStuck = true;
  await second(quick, slow);
  const taken = slow.messages.length;
  for (let value = 0; value < 20; value++) {
    all.set("server", value);
    await second(quick);
  }
  assert.equal(slow.messages.length, taken, "nothing is kept for it");
  slow.goOn();
  await until(() => !slow.writableNeedDrain);
  await second(quick, slow);
  assert.deepEqual(slow.last, { event: "all", facts: { server: 19 } });
});

test("other connections have a turn of the event loop after each reader", async (t) => {
  const { join, second } = feedOf(t);
  const readers = [join(), join()];
  await until(() => readers.every(({ messages }) => messages.length === 2));
  let seen = 0;
  readers[0]?.once("written", () => setImmediate(() => (seen = readers[1]?.messages.length ?? 0)));
  await second(...readers);
  assert.equal(seen, 2, "the second reader has its message later");
});
