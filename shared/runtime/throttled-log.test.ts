import assert from "node:assert/strict";
import { test } from "node:test";
import { type Expiring, expiryConditions } from "../tls/expiry.ts";
import { createLogger } from "./logger.ts";
import { ConditionLog, ThrottledLog } from "./throttled-log.ts";

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly cluster?: string;
  readonly server?: string;
  readonly omitted?: number;
  readonly kind?: string;
}

function logged() {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "debug", format: "json", name: "test", destination });
  return { lines, log: new ThrottledLog(log), written: () => lines.filter(({ level }) => level !== "debug") };
}

test("a flood is ten lines, the rest is at debug, and the end of the minute says how many that were", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { lines, log, written } = logged();
  for (let count = 0; count < 1_000; count++) log.write("warn", { cluster: "blue", remote: "x" }, "knock");
  assert.equal(lines.filter(({ level }) => level === "debug").length, 990);
  assert.equal(written().length, 10);
  t.mock.timers.tick(60_000);
  assert.equal(written().length, 11, "although nobody knocks any more");
  const { level, cluster, omitted, msg } = written().at(-1) ?? assert.fail();
  assert.deepEqual([level, cluster, omitted], ["warn", "blue", 990]);
  assert.equal(msg, "knock: 990 more in a minute were logged at debug level only");
});

test("the next minute begins anew, and one in which every line was written adds no line", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  for (let minute = 1; minute <= 2; minute++) {
    for (let count = 0; count < 10; count++) log.write("info", {}, "knock");
    t.mock.timers.tick(60_000);
    assert.equal(written().length, 10 * minute);
  }
});

test("each cluster and each server has lines of its own, and its own count of those that were not written", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const name of ["cluster", "server"] as const) {
    const { log, written } = logged();
    for (const whose of ["one", "other"]) {
      for (let count = 0; count < 12; count++) log.write("info", { [name]: whose }, "knock");
    }
    assert.equal(written().filter((line) => line[name] === "other").length, 10, name);
    t.mock.timers.tick(60_000);
    const ends = written().filter(({ omitted }) => omitted !== undefined);
    assert.deepEqual(
      ends.map((line) => [line[name], line.omitted]),
      [
        ["one", 2],
        ["other", 2],
      ],
    );
  }
});

test("each message has lines of its own, so that a flood of one does not hide another", () => {
  const { lines, log } = logged();
  for (let count = 0; count < 20; count++) log.write("info", {}, "knock");
  log.write("warn", { reason: "a bad key" }, "knock with a key");
  const { level, msg } = lines.at(-1) ?? assert.fail();
  assert.deepEqual([level, msg], ["warn", "knock with a key"]);
});

test("each kind of a message has lines of its own, and its own count of those that were not written", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  for (let count = 0; count < 20; count++) log.write("warn", { cluster: "blue" }, "knock", { kind: "no key" });
  for (let count = 0; count < 12; count++)
    log.write("warn", { cluster: "blue", reason: "a bad key" }, "knock", { kind: "a key" });
  assert.equal(written().length, 20);
  t.mock.timers.tick(60_000);
  const ends = written().filter(({ omitted }) => omitted !== undefined);
  assert.deepEqual(
    ends.map(({ kind, omitted, msg }) => [kind, omitted, msg]),
    [
      ["no key", 10, "knock: 10 more in a minute were logged at debug level only"],
      ["a key", 2, "knock: 2 more in a minute were logged at debug level only"],
    ],
  );
});

test("a repetition of a line is written once in a minute, and another text at once", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  const fail = (reason: string) => log.write("warn", { reason }, "attempt failed", { once: reason });
  for (const reason of ["refused", "refused", "timed out", "refused"]) fail(reason);
  assert.equal(written().length, 2);
  t.mock.timers.tick(60_000);
  assert.equal(written().length, 2, "repetitions are not counted among the lines that were omitted");
  fail("refused");
  assert.equal(written().length, 3);
  for (let count = 0; count < 100; count++) fail(`reason ${count}`);
  assert.equal(written().length, 2 + 10, "a peer that invents reasons gets no more lines than others");
});

test("a line needs room in each of its budgets, and one that is used up may get more", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  let allowed = 0;
  let asked = 0;
  const moreLines = (): number => {
    asked++;
    return allowed;
  };
  const all = { key: "all", lines: 4, subject: "all", fields: {}, moreLines };
  const write = (one: string) =>
    log.write("info", {}, "line", { budgets: [{ key: one, lines: 3, subject: one, fields: { one } }, all] });
  for (let count = 0; count < 5; count++) write("a");
  assert.equal(written().length, 3, "the lines that one has too many take none of all");
  for (const one of ["b", "c", "d", "e"]) write(one);
  assert.deepEqual([written().length, asked], [4, 1], "the number is not asked for each line that is omitted");
  allowed = 6;
  for (const one of ["f", "g", "h", "i"]) write(one);
  assert.equal(written().length, 6);
  t.mock.timers.tick(60_000);
  const ends = written().filter(({ omitted }) => omitted !== undefined);
  assert.deepEqual(
    ends.map(({ msg, omitted }) => [msg.split(":")[0], omitted]),
    [
      ["a", 2],
      ["all", 5],
    ],
  );
});

test("the number of budgets has a bound, beyond which all lines share one", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  for (let count = 0; count < 10_000; count++) log.write("info", { cluster: `c${count}` }, "line");
  assert.equal(written().length, 10_000);
  for (let count = 0; count < 1_000; count++) log.write("info", { cluster: `d${count}` }, "line");
  assert.equal(written().length, 10_010);
  t.mock.timers.tick(60_000);
  assert.equal(written().at(-1)?.omitted, 990);
});

test("the budgets of one owner do not take the lines of another", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  const write = (owner: string, key: string) =>
    log.write("info", {}, "line", { budgets: [{ key: `${owner} ${key}`, owner, lines: 1, subject: key, fields: {} }] });
  for (let count = 0; count < 11_000; count++) write("red", `${count}`);
  assert.equal(written().length, 10_010, "the rest of red shares ten lines");
  for (let count = 0; count < 100; count++) write("blue", `${count}`);
  assert.equal(written().length, 10_110);
});

const MINUTE = 60_000;
const DAY = 1_440;
const at = (minutes: number): Date => new Date(minutes * MINUTE);

/** The log of the expiry of a certificate that may be replaced, by a clock that is turned on by hand. */
function expiryLog(timers: { tick(ms: number): void }) {
  const state: { inUse: Expiring[] } = { inUse: [] };
  const logged: [level: string, fields: object, message: string][] = [];
  const log = new ConditionLog(
    {
      warn: (fields, message) => void logged.push(["warn", fields, message]),
      error: (fields, message) => void logged.push(["error", fields, message]),
    },
    () => expiryConditions(state.inUse, new Date()),
  );
  /** What is logged in this number of minutes. */
  const saidIn = (minutes: number): string[] => {
    for (let minute = 0; minute < minutes; minute++) timers.tick(MINUTE);
    return logged.splice(0).map(([level, , message]) => `${level}: ${message}`);
  };
  const end = (): void => {
    log.close();
    timers.tick(MINUTE); // its timer ends with the next look, and must not outlive this clock
  };
  return { state, logged, log, saidIn, end };
}

function certificate(content: string, from: number, to: number): Expiring {
  const fields = { cluster: "blue", file: "blue.yaml" };
  const words = { role: "agents_cert", by: "agents.cert", consequence: "agents refuse this server" };
  return {
    ...{ ...words, thing: "certificate", cluster: "blue", content, fields },
    ...{ notBefore: at(from), notAfter: at(to) },
  };
}

test("a certificate is logged once before its time and once when it expires in use; another one anew", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const { state, logged, log, saidIn } = expiryLog(t.mock.timers);
  const early = "error: the certificate of agents.cert is not yet valid: agents refuse this server";
  const over = "error: the certificate of agents.cert has expired: agents refuse this server";
  const isOver = (said: readonly string[]): boolean => said.at(-1) === over;

  assert.deepEqual(saidIn(2), [], "there is none");
  state.inUse = [certificate("one", 5, 10)];
  log.check();
  assert.deepEqual(logged[0]?.[1], { cluster: "blue", file: "blue.yaml", notBefore: at(5), notAfter: at(10) });
  assert.deepEqual(saidIn(2), [early]);
  assert.deepEqual(saidIn(5), [], "it is valid at minute 9");
  assert.ok(isOver(saidIn(1)));
  log.check();
  assert.deepEqual(saidIn(5), []);
  state.inUse = [certificate("two", 5, 10)];
  log.check();
  assert.ok(isOver(saidIn(1)), "with the same dates");
  state.inUse = [certificate("three", 0, 400)];
  assert.deepEqual(saidIn(1), []);
  log.close();
  assert.deepEqual(saidIn(400), [], "it looks no more");
});

test("the end of what lives long is announced 30 and 7 days before, once each", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const { state, saidIn, end } = expiryLog(t.mock.timers);
  state.inUse = [certificate("one", -333 * DAY, 32 * DAY)];
  const within = (days: number) =>
    `warn: the certificate of agents.cert ends within ${days} days: agents refuse this server from then on`;
  assert.deepEqual(saidIn(2 * DAY - 1), []);
  assert.deepEqual(saidIn(1), [within(30)]);
  assert.deepEqual(saidIn(23 * DAY - 1), []);
  assert.deepEqual(saidIn(1), [within(7)]);
  assert.equal(saidIn(7 * DAY).length, 1, "that it has expired");
  end();
});

test("what is renewed before notice is due is not spoken of", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const { state, saidIn, end } = expiryLog(t.mock.timers);
  // As Kubernetes does it with a token of an hour: a new one after four fifths of its life.
  for (let renewals = 0; renewals < 5; renewals++) {
    const now = renewals * 48;
    state.inUse = [certificate(`token ${renewals}`, now, now + 60)];
    assert.deepEqual(saidIn(48), []);
  }
  assert.deepEqual(saidIn(12).slice(0, 2), [
    "warn: the certificate of agents.cert ends within 10 minutes: agents refuse this server from then on",
    "warn: the certificate of agents.cert ends within 5 minutes: agents refuse this server from then on",
  ]);
  end();
});
