import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, renameSync } from "node:fs";
import { open } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { TempDir } from "../../e2e/harness/temp.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { NumberMetric } from "../../shared/runtime/metrics.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { type AuditedFacts, AuditTrail } from "./audit-trail.ts";
import { auditFile, auditLines } from "./testing/trail.ts";

function trailOf(t: TestContext, where: string, { required = false } = {}) {
  const lost = new NumberMetric();
  const warnings: unknown[] = [];
  const log = { warn: (...warning: unknown[]) => void warnings.push(warning) };
  const trail = new AuditTrail(where, { serverId: "srv-1", required, log, lost });
  t.after(() => trail.close());
  return { trail, lost, warnings };
}

function pathIn(t: TestContext): string {
  const dir = new TempDir();
  t.after(() => dir[Symbol.dispose]());
  return `${dir.path}/audit`;
}

function fifo(t: TestContext): string {
  const path = pathIn(t);
  execFileSync("mkfifo", [path]);
  return path;
}

const FACTS: AuditedFacts = { kind: "connect", cluster: "blue", by: {}, target: "10.0.0.1:10250" };

function certificate(cn: string): PeerIdentity {
  const fingerprint256 = Array.from({ length: 32 }, () => "AB").join(":");
  return { cn, o: [], dns: [], uri: [], serial: "0A", fingerprint256, notAfter: new Date(), chain: [Buffer.from("x")] };
}

test("a decision and its end are joined by an id, which no other start of a server has", (t) => {
  const path = pathIn(t);
  const ids = [1, 2].map(() => {
    const { trail } = trailOf(t, path);
    const entry = trail.allowed(FACTS);
    trail.ended(entry, { outcome: "ok", endedBy: "caller", bytesUp: 1, bytesDown: 2 });
    return entry.id;
  });
  const lines = auditFile(path);
  assert.deepEqual(
    lines.map(({ event, id }) => [event, id]),
    ids.flatMap((id) => [
      ["decision", id],
      ["end", id],
    ]),
  );
  assert.equal(new Set(ids).size, 2);
});

test("whoever asks is named by certificate, token or socket; who has proved nothing, by what it claims", (t) => {
  const path = pathIn(t);
  const { trail } = trailOf(t, path);
  for (const by of [
    { peer: certificate("kube-apiserver") },
    { subject: "system:serviceaccount:a:b" },
    { unixSocket: true },
    { claimed: "subject CN=x, issuer CN=y, serial 01" },
    {},
  ]) {
    trail.refused({ ...FACTS, by }, "forbidden", "no");
  }
  assert.deepEqual(
    auditFile(path).map(({ identity }) => identity),
    [
      { by: "certificate", subject: "CN=kube-apiserver", serial: "0A", fingerprint: `AB${":AB".repeat(31)}` },
      { by: "token", subject: "system:serviceaccount:a:b" },
      { by: "unix" },
      { by: "nothing", claimed: "subject CN=x, issuer CN=y, serial 01" },
      { by: "nothing" },
    ],
  );
});

test("text of peers stays inside its field, and inside a line that a pipe takes whole", (t) => {
  const path = pathIn(t);
  const { trail } = trailOf(t, path);
  const hostile = `"}\n{"v":1}\u0000\u001b[2J\u2028${"é\u0001".repeat(2_000)}`;
  trail.refused({ ...FACTS, by: { peer: certificate(hostile) } }, "forbidden", hostile);
  trail.refused({ ...FACTS, by: { subject: hostile } }, "forbidden", hostile);
  const lines = auditFile(path);
  assert.equal(lines.length, 2);
  assert.match(readFileSync(path, "utf8"), /^[^\p{Cc}]+\n[^\p{Cc}]+\n$/u);
});

test("while the sink takes nothing, what is lost is counted, and a line says how much it was when it goes on", async (t) => {
  const path = fifo(t);
  const { trail, lost, warnings } = trailOf(t, path);
  while (lost.value < 10) trail.refused(FACTS, "forbidden", "x".repeat(200));
  await until(() => trail.checks()[0]?.hasFaults === true);
  assert.deepEqual(trail.checks(), [
    { name: "audit", ok: true, hasFaults: true, detail: "the audit trail: nobody reads it, lines of it lost: 10" },
  ]);
  assert.equal(warnings.length, 1, "one line of the log");
  const reader = await open(path, "r");
  t.after(() => reader.close());
  let text = "";
  const buffer = Buffer.alloc(64 * 1024);
  while (!text.includes('"gap"')) text += buffer.toString("utf8", 0, (await reader.read(buffer)).bytesRead);
  const gap = auditLines(text).at(-1);
  assert.deepEqual([gap?.event, gap?.["lost"]], ["gap", 10]);
  assert.deepEqual(trail.checks(), [{ name: "audit", ok: true, hasFaults: false, detail: "" }]);
});

test("SIGHUP opens the file again", (t) => {
  const path = pathIn(t);
  const { trail } = trailOf(t, path);
  trail.refused(FACTS, "forbidden", "before");
  renameSync(path, `${path}.1`);
  process.emit("SIGHUP");
  trail.refused(FACTS, "forbidden", "after");
  assert.deepEqual(
    [auditFile(`${path}.1`), auditFile(path)].map(([line]) => line?.["reason"]),
    ["before", "after"],
  );
});

test("a file that cannot be opened again at SIGHUP has a line in the log, and the one before gets the lines", (t) => {
  const dir = `${pathIn(t)}.d`;
  mkdirSync(dir);
  const { trail, warnings } = trailOf(t, `${dir}/audit`);
  renameSync(dir, `${dir}.away`);
  process.emit("SIGHUP");
  trail.refused(FACTS, "forbidden", "no");
  assert.equal(auditFile(`${dir}.away/audit`).length, 1);
  const [[fields, sentence]] = warnings as [[{ readonly reason: string }, string]];
  assert.match(fields.reason, /^ENOENT: .*audit/);
  assert.equal(sentence, "the audit trail's file cannot be opened again: the old one stays");
});

test("a trail that is required and cannot be written refuses at once, and the server is not ready", async (t) => {
  const { trail, lost } = trailOf(t, "/dev/full", { required: true });
  trail.requireWritable();
  const entry = trail.allowed(FACTS);
  await assert.rejects(trail.written(entry, new Cancellation()) ?? Promise.resolve(), { code: "unaudited" });
  assert.throws(() => trail.requireWritable(), { code: "unaudited" });
  assert.equal(trail.checks()[0]?.ok, false);
  trail.refused(FACTS, "unaudited", "no");
  assert.equal(lost.value, 1, "such a refusal takes no room of the ends of what is open");
});

test("a trail that is not required lets a decision pass that cannot be written", (t) => {
  const { trail } = trailOf(t, "/dev/full");
  const entry = trail.allowed(FACTS);
  trail.requireWritable();
  assert.equal(trail.written(entry, new Cancellation()), undefined);
  assert.equal(trail.checks()[0]?.ok, true);
});

test("a decision that is required waits for a slow reader, and for one that does not read a second at most", async (t) => {
  const path = fifo(t);
  const { trail } = trailOf(t, path, { required: true });
  const entry = trail.allowed(FACTS);
  for (let at = 0; trail.written(entry, new Cancellation())?.catch(() => {}) === undefined; at++) {
    trail.refused(FACTS, "forbidden", `${at}`);
  }
  const waits = trail.written(entry, new Cancellation()) ?? assert.fail("it waits");
  const cancellation = new Cancellation<Error>();
  const cancelled = trail.written(entry, cancellation) ?? assert.fail("it waits");
  cancellation.cancel(new Error("the caller has gone"));
  await assert.rejects(cancelled, /the caller has gone/);
  const reader = await open(path, "r");
  t.after(() => reader.close());
  await reader.read(Buffer.alloc(64 * 1024));
  await waits;
  for (let at = 0; trail.written(entry, new Cancellation())?.catch(() => {}) === undefined; at++) {
    trail.refused(FACTS, "forbidden", `${at}`);
  }
  await assert.rejects(trail.written(entry, new Cancellation()) ?? assert.fail("it waits"), { code: "unaudited" });
});

test("a decision that is required and for which there was no room is refused, although the reader goes on at once", async (t) => {
  const path = fifo(t);
  const { trail, lost } = trailOf(t, path, { required: true });
  while (lost.value === 0) trail.refused(FACTS, "forbidden", "x");
  trail.requireWritable(); // a reader that pauses for a moment is no fault
  const entry = trail.allowed({ ...FACTS, by: { subject: "x".repeat(200) } });
  const refused = assert.rejects(trail.written(entry, new Cancellation()) ?? Promise.resolve(), { code: "unaudited" });
  const reader = await open(path, "r");
  t.after(() => reader.close());
  let text = "";
  const buffer = Buffer.alloc(64 * 1024);
  while (!text.includes('"gap"')) text += buffer.toString("utf8", 0, (await reader.read(buffer)).bytesRead);
  await refused;
});

test("a trail that is closed takes no more lines, and counts them", async (t) => {
  const path = pathIn(t);
  const { trail, lost } = trailOf(t, path);
  const entry = trail.allowed(FACTS);
  await trail.close();
  trail.ended(entry, { outcome: "ok" });
  assert.equal(lost.value, 1);
  assert.equal(auditFile(path).length, 1);
});
