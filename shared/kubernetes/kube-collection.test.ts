import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import * as z from "zod";
import { until } from "../basics/testing/wait.ts";
import { KubeCollection, ObjectWatch } from "./kube-collection.ts";
import { FakeCollection } from "./testing/fake-collection.ts";

const THINGS = { group: "example.com", plural: "things", singular: "thing" };
const Thing = z.object({ metadata: z.object({ name: z.string() }), size: z.number() });
const thing = (name: string, size: number, app = "a") => ({ metadata: { name, labels: { app } }, size });

/** A watch of the things of an API server, what it has last shown, and why it failed. */
async function watching(t: TestContext, ...things: ReturnType<typeof thing>[]) {
  const api = await FakeCollection.start(t, THINGS);
  for (const one of things) api.put(one);
  const collection = new KubeCollection(api.access, THINGS, "ns");
  const failures: string[] = [];
  const seen = { shown: "nothing" };
  const watch = new ObjectWatch({
    collection,
    labelSelector: "app=a",
    schema: Thing,
    pauseMs: 5,
    onObjects: (objects) => {
      seen.shown = objects.map(({ metadata, size }) => `${metadata.name}=${size}`).join();
    },
    onFailure: ({ message }) => failures.push(message),
  });
  t.after(() => {
    watch.close();
    collection.close();
  });
  return { api, watch, seen, failures };
}

const lists = (api: FakeCollection): number => api.asked.filter((asked) => asked === "list").length;

test("objects with the labels are listed, and each change of them is followed without another list", async (t) => {
  const { api, watch, seen } = await watching(t, thing("x", 1), thing("other", 1, "b"));
  watch.start();
  await until(() => api.watching === 1);
  assert.equal(seen.shown, "x=1");
  api.put(thing("y", 2));
  await until(() => seen.shown === "x=1,y=2");
  api.put(thing("x", 3));
  await until(() => seen.shown === "x=3,y=2");
  api.delete("x");
  await until(() => seen.shown === "y=2");
  api.put(thing("other", 9, "b"));
  assert.deepEqual(api.asked, ["list", "watch"]);
});

test("where a watch ends, or says what is no event, the objects are listed again", async (t) => {
  for (const line of [
    '{"type":"ERROR","object":{"code":410,"message":"too old resource version"}}',
    '{"type":"ADDED","object":{"metadata":{"name":"x"}}}',
    "<html>",
  ]) {
    const { api, watch, seen, failures } = await watching(t, thing("x", 1));
    watch.start();
    await until(() => api.watching === 1);
    api.say(line);
    await until(() => lists(api) === 2 && api.watching === 1);
    assert.equal(seen.shown, "x=1");
    assert.deepEqual(failures, [], line);
    watch.close();
  }
});

test("without the right to watch it lists time and again, and that is no failure", async (t) => {
  const { api, watch, seen, failures } = await watching(t);
  api.forbidden.add("watch");
  watch.start();
  await until(() => seen.shown === "" && api.asked.includes("watch"));
  api.put(thing("x", 1));
  await until(() => seen.shown === "x=1");
  assert.deepEqual(failures, []);
});

test("without the right to list the sentence names the rule to grant, and the objects of before stay", async (t) => {
  const { api, watch, seen, failures } = await watching(t, thing("x", 1));
  watch.start();
  await until(() => api.watching === 1);
  api.forbidden.add("list");
  watch.listAgain();
  await until(() => failures.length === 1);
  assert.match(
    failures[0] ?? "",
    /let us list things: grant the verb "list" on "things" \(example\.com\) in namespace "ns"/,
  );
  assert.equal(seen.shown, "x=1");
});

test("an answer that is no list is a failure, and so is an object that is none", async (t) => {
  for (const [body, sentence] of [
    ["<html>", /answers with something else than a list/],
    [{ metadata: { resourceVersion: "1" }, items: [{ metadata: {} }] }, /something else than an object of its list/],
  ] as const) {
    const { api, watch, failures } = await watching(t);
    api.stub.answer = () => ({ status: 200, body });
    watch.start();
    await until(() => failures.length === 1);
    assert.match(failures[0] ?? "", sentence);
    watch.close();
  }
});

test("a line of a watch without an end is not kept", async (t) => {
  const { api, watch } = await watching(t, thing("x", 1));
  watch.start();
  await until(() => api.watching === 1);
  api.say("x".repeat(1024 * 1024 + 1));
  await until(() => lists(api) === 2);
});

test("a closed watch asks for nothing more", async (t) => {
  const { api, watch } = await watching(t, thing("x", 1));
  watch.start();
  await until(() => api.watching === 1);
  watch.close();
  await until(() => api.watching === 0);
  watch.listAgain();
  assert.equal(lists(api), 1);
});
