import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, promises, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import type { ConfigError } from "../shared/config/options.ts";
import { pipeAt } from "../shared/documents/testing/files.ts";
import { RouteStore } from "./route-store.ts";

const yaml = (name: string, to = "10.0.0.1:1") => `sni: [${name}]\nto: ["${to}"]\n`;

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "culvert-routes-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const TIMING = { settleMs: 5, pollMs: 60_000, missingPollMs: 5 };

/** A store that is closed after the test, the reasons and messages that it logged, and how often it has read. */
async function open(t: TestContext, path: string, timing = TIMING) {
  const logged: string[] = [];
  const reads = { count: 0 };
  const log = {
    info: (_fields: object, message: string) => logged.push(message),
    error: (fields: object) => logged.push(String((fields as { reason: string }).reason)),
  };
  const store = await RouteStore.open({ path, log, timing, onRead: () => reads.count++ });
  t.after(() => store.close());
  return { store, logged, reads, names: () => store.table.routes.map(({ name }) => name).sort() };
}

test("files in the directory come, change and go, and others beside them are left alone", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  for (const name of ["notes.txt", ".hidden.yaml", "a.yaml~"]) writeFileSync(join(path, name), "no: [route");
  const { store, names } = await open(t, path);
  assert.deepEqual([names(), store.faults, store.files], [["a.example"], [], 1]);
  writeFileSync(join(path, "b.yml"), yaml("b.example"));
  await until(() => names().length === 2);
  writeFileSync(join(path, "b.yml"), yaml("c.example"));
  await until(() => names().includes("c.example"));
  rmSync(join(path, "a.yaml"));
  await until(() => names().length === 1);
  assert.deepEqual(store.faults, []);
});

test("a broken version keeps the last one and is logged once; a mended one is read again", async (t) => {
  const path = join(folder(t), "routes.yaml");
  writeFileSync(path, yaml("a.example"));
  const { store, logged, reads, names } = await open(t, path);
  writeFileSync(path, `${yaml("b.example")}to: []\n`);
  await until(() => store.faults.length > 0);
  assert.match(store.faults[0] ?? "", /routes\.yaml: to is there twice at line 3, column 1: /);
  assert.deepEqual(names(), ["a.example"]);
  writeFileSync(path, yaml("b.example"));
  await until(() => names()[0] === "b.example");
  assert.deepEqual(store.faults, []);
  assert.match(logged.shift() ?? "", /^to is there twice/);
  assert.deepEqual(logged, ["a route file can be used again"]);
  assert.equal(reads.count, 2);
});

test("a broken file that stays as it is counts as read once, however often the files are checked", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, reads, names } = await open(t, path, { ...TIMING, pollMs: 2 });
  writeFileSync(join(path, "a.yaml"), "sni: []\n");
  await until(() => store.faults.length > 0);
  const checks = t.mock.method(promises, "readdir").mock;
  await until(() => checks.callCount() > 5);
  assert.deepEqual([reads.count, names()], [1, ["a.example"]]);
});

test("a directory that has gone is a fault, and the routes stay", async (t) => {
  const path = join(folder(t), "routes");
  mkdirSync(path);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, names } = await open(t, path);
  renameSync(path, `${path}.old`);
  await until(() => store.faults.length > 0);
  assert.deepEqual(store.faults, [`${path}: it does not exist.`]);
  assert.deepEqual(names(), ["a.example"]);
  renameSync(`${path}.old`, path);
  await until(() => store.faults.length === 0);
});

test("a start with a file that is too large, a directory or a pipe fails with each of them", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  writeFileSync(join(path, "b.yaml"), `#${" ".repeat(1_048_576)}`);
  mkdirSync(join(path, "c.yaml"));
  using _pipe = pipeAt(join(path, "d.yaml"));
  await assert.rejects(open(t, path), (error: ConfigError) => {
    assert.deepEqual(error.problems, [
      `--routes: ${join(path, "b.yaml")}: it is larger than 1 MiB: put its routes into several files.`,
      `--routes: ${join(path, "c.yaml")}: it is a directory, and a file is expected.`,
      `--routes: ${join(path, "d.yaml")}: it cannot be read: it is a pipe, a socket or a device, not a regular file.`,
    ]);
    return true;
  });
});
