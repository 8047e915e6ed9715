import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentRefusals } from "./refusals.ts";

const AGENT = { side: "agent", code: "401", from: "10.0.0.9", reason: "no client certificate was sent" } as const;

test("the newest refusal stands first, and one that is repeated is one with a number", () => {
  const refusals = new RecentRefusals();
  refusals.tell(AGENT, new Date(1_000));
  refusals.tell(
    { side: "caller", code: "forbidden", from: "CN=x", target: "10.0.0.1:22", reason: "no" },
    new Date(2_000),
  );
  refusals.tell(AGENT, new Date(3_000));
  assert.deepEqual(
    refusals.list().map(({ code, times, at, target }) => [code, times, at, target]),
    [
      ["401", 2, "1970-01-01T00:00:03.000Z", undefined],
      ["forbidden", 1, "1970-01-01T00:00:02.000Z", "10.0.0.1:22"],
    ],
  );
});

test("ten that differ are kept, whoever comes", () => {
  const refusals = new RecentRefusals();
  for (let port = 1; port <= 1_000; port++) refusals.tell({ ...AGENT, from: `10.0.0.9:${port}` });
  assert.deepEqual(
    refusals.list().map(({ from }) => from),
    Array.from({ length: 10 }, (_, index) => `10.0.0.9:${1_000 - index}`),
  );
});

test("what a stranger says is one printable line, and not a long one", () => {
  const refusals = new RecentRefusals();
  refusals.tell({ ...AGENT, from: `\u001b[2J${"x".repeat(10_000)}`, reason: `a\nb${"y".repeat(10_000)}` });
  const [told] = refusals.list();
  assert.ok(told !== undefined && told.from.length <= 120 && told.reason.length <= 200);
  assert.doesNotMatch(told.from + told.reason, /[^ -~]/);
});
