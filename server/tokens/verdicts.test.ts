import assert from "node:assert/strict";
import { test } from "node:test";
import { type Judged, Verdicts } from "./verdicts.ts";

const refused = (name: string): Judged => ({ verdict: { refused: name }, keepUntilMs: Date.now() + 60_000 });

test("no more verdicts are kept than allowed: the oldest goes", async () => {
  const verdicts = new Verdicts({ maxKept: 2, maxAsked: 10 });
  const asked: string[] = [];
  const ask = (token: string) =>
    verdicts.of(token, async () => {
      asked.push(token);
      return refused(token);
    });
  for (const token of ["a", "b", "c", "b", "c", "a"]) assert.deepEqual(await ask(token), { refused: token });
  assert.deepEqual(asked, ["a", "b", "c", "a"]);
});

test("no more are asked about at once than allowed: one more is told to come back", async () => {
  const verdicts = new Verdicts({ maxKept: 10, maxAsked: 2 });
  const answers: (() => void)[] = [];
  const ask = (token: string) =>
    verdicts.of(token, () => new Promise((resolve) => answers.push(() => resolve(refused(token)))));
  const [a, sameAsA, b] = [ask("a"), ask("a"), ask("b")];
  const late = await ask("c");
  assert.ok("unavailable" in late && late.retryAfterMs === 1_000);
  for (const answer of answers) answer();
  assert.deepEqual(await Promise.all([a, sameAsA, b]), [{ refused: "a" }, { refused: "a" }, { refused: "b" }]);
  assert.equal(answers.length, 2);
});

test("a judge that fails leaves nothing behind: the next one is asked", async () => {
  const verdicts = new Verdicts({ maxKept: 10, maxAsked: 1 });
  await assert.rejects(
    verdicts.of("secret", () => Promise.reject(new Error("broken"))),
    /broken/,
  );
  assert.deepEqual(await verdicts.of("secret", async () => refused("x")), { refused: "x" });
});
