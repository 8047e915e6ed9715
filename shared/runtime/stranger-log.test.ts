import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "./logger.ts";
import { StrangerLog } from "./stranger-log.ts";

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly cluster?: string;
  readonly server?: string;
  readonly untold?: number;
  readonly kind?: string;
}

function logged() {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "debug", format: "json", name: "test", destination });
  return { lines, log: new StrangerLog(log), told: () => lines.filter(({ level }) => level !== "debug") };
}

test("a flood is ten lines, the rest is at debug, and the end of the minute says how many that were", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { lines, log, told } = logged();
  for (let count = 0; count < 1_000; count++) log.tell("warn", { cluster: "blue", remote: "x" }, "knock");
  assert.equal(lines.filter(({ level }) => level === "debug").length, 990);
  assert.equal(told().length, 10);
  t.mock.timers.tick(60_000);
  assert.equal(told().length, 11, "although nobody knocks any more");
  const { level, cluster, untold, msg } = told().at(-1) ?? assert.fail();
  assert.deepEqual([level, cluster, untold], ["warn", "blue", 990]);
  assert.equal(msg, "knock: 990 more in a minute were not written at this level");
});

test("the next minute begins anew, and one in which every line was written ends in silence", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, told } = logged();
  for (let minute = 1; minute <= 2; minute++) {
    for (let count = 0; count < 10; count++) log.tell("info", {}, "knock");
    t.mock.timers.tick(60_000);
    assert.equal(told().length, 10 * minute);
  }
});

test("each cluster and each server has lines of its own, and its own count of those that were not written", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const name of ["cluster", "server"] as const) {
    const { log, told } = logged();
    for (const whose of ["one", "other"]) {
      for (let count = 0; count < 12; count++) log.tell("info", { [name]: whose }, "knock");
    }
    assert.equal(told().filter((line) => line[name] === "other").length, 10, name);
    t.mock.timers.tick(60_000);
    const ends = told().filter(({ untold }) => untold !== undefined);
    assert.deepEqual(
      ends.map((line) => [line[name], line.untold]),
      [
        ["one", 2],
        ["other", 2],
      ],
    );
  }
});

test("each message has lines of its own, so that a flood of one does not hide another", () => {
  const { lines, log } = logged();
  for (let count = 0; count < 20; count++) log.tell("info", {}, "knock");
  log.tell("warn", { reason: "a bad key" }, "knock with a key");
  const { level, msg } = lines.at(-1) ?? assert.fail();
  assert.deepEqual([level, msg], ["warn", "knock with a key"]);
});

test("each kind of a message has lines of its own, and its own count of those that were not written", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, told } = logged();
  for (let count = 0; count < 20; count++) log.tell("warn", { cluster: "blue" }, "knock", "no key");
  for (let count = 0; count < 12; count++) log.tell("warn", { cluster: "blue", reason: "a bad key" }, "knock", "a key");
  assert.equal(told().length, 20);
  t.mock.timers.tick(60_000);
  const ends = told().filter(({ untold }) => untold !== undefined);
  assert.deepEqual(
    ends.map(({ kind, untold, msg }) => [kind, untold, msg]),
    [
      ["no key", 10, "knock: 10 more in a minute were not written at this level"],
      ["a key", 2, "knock: 2 more in a minute were not written at this level"],
    ],
  );
});
