import assert from "node:assert/strict";
import { test } from "node:test";
import { type Expiring, expiryConditions } from "../tls/expiry.ts";
import { ConditionLog } from "./condition-log.ts";

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
  /** What is said in so many minutes. */
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
