import assert from "node:assert/strict";
import { test } from "node:test";
import { sharedLookup } from "./lookup.ts";

test("dials of one name at one time share a question; a later dial asks again", () => {
  const asked: { host: string; answer: (error: Error | null) => void }[] = [];
  const lookup = sharedLookup((host, done) => asked.push({ host, answer: (error) => done(error, []) }));
  const answers: string[] = [];
  lookup("a", () => answers.push("a1"));
  lookup("b", () => answers.push("b1"));
  lookup("a", (error) => {
    answers.push(`a2 ${error?.message}`);
    lookup("a", () => answers.push("a3"));
  });
  assert.deepEqual(
    asked.map(({ host }) => host),
    ["a", "b"],
  );
  asked[0]?.answer(new Error("late"));
  assert.deepEqual(answers, ["a1", "a2 late"]);
  assert.deepEqual(
    asked.map(({ host }) => host),
    ["a", "b", "a"],
  );
  asked[1]?.answer(null);
  asked[2]?.answer(null);
  assert.deepEqual(answers, ["a1", "a2 late", "b1", "a3"]);
});

test("the system's resolver knows localhost", async () => {
  const addresses = await new Promise<string[]>((resolve, reject) =>
    sharedLookup()("localhost", (error, all) => (error ? reject(error) : resolve(all.map(({ address }) => address)))),
  );
  assert.ok(addresses.some((address) => address === "127.0.0.1" || address === "::1"));
});
