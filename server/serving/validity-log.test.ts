import assert from "node:assert/strict";
import { test } from "node:test";
import { type ShownCertificate, ValidityLog } from "./validity-log.ts";

const MINUTE = 60_000;
const at = (minutes: number): Date => new Date(minutes * MINUTE);

test("a certificate is told of once before its time and once when it expires in use; another one anew", (t) => {
  t.mock.timers.enable({ apis: ["setInterval", "Date"], now: 0 });
  const certificate = (cert: string, from: number, to: number) => ({ cert, notBefore: at(from), notAfter: at(to) });
  let inUse: ShownCertificate["certificate"] | undefined;
  const told: [fields: object, message: string][] = [];
  const log = new ValidityLog(
    { error: (fields: object, message: string) => told.push([fields, message]) } as never,
    () =>
      inUse && {
        certificate: inUse,
        by: "agents.cert",
        clients: "agents",
        fields: { cluster: "blue", file: "blue.yaml" },
      },
  );
  /** What is said in so many minutes. */
  const saidIn = (minutes: number): string[] => {
    for (let minute = 0; minute < minutes; minute++) t.mock.timers.tick(MINUTE);
    return told.splice(0).map(([, message]) => message);
  };
  const early = "the certificate of agents.cert is not yet valid: agents refuse this server";
  const over = "the certificate of agents.cert has expired: agents refuse this server";

  assert.deepEqual(saidIn(2), [], "there is none");
  inUse = certificate("one", 5, 10);
  log.look();
  const where = { cluster: "blue", file: "blue.yaml", notBefore: at(5), notAfter: at(10) };
  assert.deepEqual(told, [[where, early]]);
  assert.deepEqual(saidIn(2), [early]);
  assert.deepEqual(saidIn(5), [], "it is valid at minute 9");
  assert.deepEqual(saidIn(1), [over]);
  log.look();
  assert.deepEqual(saidIn(5), []);
  inUse = certificate("two", 5, 10);
  log.look();
  assert.deepEqual(saidIn(1), [over], "with the same dates");
  inUse = certificate("three", 0, 18);
  assert.deepEqual(saidIn(1), []);
  log.close();
  assert.deepEqual(saidIn(5), [], "it looks no more");
});
