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
  readonly remote?: string;
  readonly code?: number;
  readonly reason?: string;
}

function logged() {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "debug", format: "json", name: "test", destination });
  return { lines, log: new ThrottledLog(log), written: () => lines.filter(({ level }) => level !== "debug") };
}

function omissions(lines: readonly Line[]): readonly Line[] {
  return lines.filter(({ omitted }) => omitted !== undefined);
}

const OMITTED = "logged at debug level only; this is the last one";

test("a flood is ten lines, the rest is at debug, and the end of the minute says how many and shows the last", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { lines, log, written } = logged();
  for (let count = 0; count < 1_000; count++) log.write("warn", { cluster: "blue", remote: `x${count}` }, "knock");
  assert.equal(lines.filter(({ level }) => level === "debug").length, 990);
  assert.equal(written().length, 10);
  t.mock.timers.tick(60_000);
  assert.equal(written().length, 11, "although nobody knocks any more");
  const { level, cluster, remote, omitted, msg } = written().at(-1) ?? assert.fail();
  assert.deepEqual([level, cluster, remote, omitted], ["warn", "blue", "x999", 990]);
  assert.equal(msg, `knock: 990 more in a minute were ${OMITTED}`);
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
    assert.deepEqual(
      omissions(written()).map((line) => [line[name], line.omitted]),
      [
        ["one", 2],
        ["other", 2],
      ],
    );
  }
});

test("each message and each kind has lines of its own, so that a flood of one does not hide another", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  for (let count = 0; count < 20; count++) log.write("warn", { code: 401 }, "knock", { kind: "no key" });
  for (let count = 0; count < 12; count++) log.write("warn", { code: 403 }, "knock", { kind: "a key" });
  log.write("info", { reason: "a bad key" }, "another message");
  assert.equal(written().length, 21);
  t.mock.timers.tick(60_000);
  assert.deepEqual(
    omissions(written()).map(({ code, omitted, msg }) => [code, omitted, msg]),
    [
      [401, 10, `knock: 10 more in a minute were ${OMITTED}`],
      [403, 2, `knock: 2 more in a minute were ${OMITTED}`],
    ],
  );
});

test("a kind with one line is written once in a minute, and another kind at once", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  const fail = (reason: string) => log.write("warn", { reason }, "attempt failed", { kind: reason, lines: 1 });
  for (const reason of ["refused", "refused", "timed out", "refused"]) fail(reason);
  assert.equal(written().length, 2);
  t.mock.timers.tick(60_000);
  assert.deepEqual(
    omissions(written()).map(({ reason, omitted }) => [reason, omitted]),
    [["refused", 2]],
  );
  fail("refused");
  assert.equal(written().length, 4);
});

test("a tenant has at most 1 MiB a minute, whatever it does, and takes no line from another", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { log, written } = logged();
  const reason = "x".repeat(700);
  for (let count = 0; count < 100_000; count++) {
    log.write("warn", { cluster: "red", reason }, "refused", { kind: `${count % 10_000}` });
  }
  log.write("warn", { cluster: "blue" }, "refused");
  log.write("warn", { remote: "10.0.0.1:1" }, "refused");
  t.mock.timers.tick(60_000);
  const red = written().filter(({ cluster }) => cluster === "red");
  assert.deepEqual([red.length, red.at(-1)?.omitted], [1_201, 99_400 - 600 * 9]);
  assert.ok(red.reduce((sum, line) => sum + JSON.stringify(line).length + 1, 0) <= 1_048_576);
  assert.equal(written().length, 1_203);
});

test("a name that is not known can be counted under one that is", () => {
  const { log, written } = logged();
  for (let count = 0; count < 20; count++) log.write("info", { cluster: `c${count}` }, "line", { tenant: "peers" });
  assert.equal(written().length, 10);
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
  /** The lines that are logged in this number of minutes. */
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
    ...words,
    thing: "certificate",
    cluster: "blue",
    content,
    fields,
    notBefore: at(from),
    notAfter: at(to),
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
