import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "./logger.ts";
import { StrangerLog } from "./stranger-log.ts";

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly untold?: number;
}

function logAt(clock: { now: number }) {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "debug", format: "json", name: "test", destination });
  return { lines, log: new StrangerLog(log, () => clock.now) };
}

test("a flood is ten lines a minute, the rest is at debug, and the next minute says how many that were", () => {
  const clock = { now: 5 };
  const { lines, log } = logAt(clock);
  for (let count = 0; count < 1_000; count++) log.tell("info", {}, "knock");
  clock.now += 60_000;
  log.tell("info", {}, "knock");
  clock.now += 60_000;
  log.tell("info", {}, "knock");
  assert.equal(lines.filter(({ level }) => level === "debug").length, 990);
  const told = lines.filter(({ level }) => level === "info");
  assert.deepEqual(
    told.map(({ untold }) => untold),
    [...Array.from({ length: 10 }, () => undefined), 990, undefined],
  );
});

test("each message has lines of its own, so that a flood of one does not hide another", () => {
  const { lines, log } = logAt({ now: 0 });
  for (let count = 0; count < 20; count++) log.tell("info", {}, "knock");
  log.tell("warn", { reason: "a bad key" }, "knock with a key");
  const { level, msg } = lines.at(-1) ?? assert.fail();
  assert.deepEqual([level, msg], ["warn", "knock with a key"]);
});
