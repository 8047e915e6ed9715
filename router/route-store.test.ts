import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, promises, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pipeAt } from "../shared/documents/testing/files.ts";
import { RouteStore } from "./route-store.ts";

const yaml = (name: string, to = "10.0.0.1:1") => `sni: [${name}]\nto: ["${to}"]\n`;

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "culvert-routes-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A store that is closed behind the test, and the faults of each reading. */
async function open(t: TestContext, path: string) {
  const told: string[][] = [];
  const store = await RouteStore.open({ path, lookMs: 5, onRead: (faults) => told.push([...faults]) });
  t.after(() => store.close());
  return { store, told, names: () => store.table.routes.map(({ name }) => name).sort() };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `not within 5 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
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

test("a broken version keeps the old one and is told once; a mended one is read again", async (t) => {
  const path = join(folder(t), "routes.yaml");
  writeFileSync(path, yaml("a.example"));
  const { store, told, names } = await open(t, path);
  writeFileSync(path, `${yaml("b.example")}to: []\n`);
  await until(() => store.faults.length > 0);
  assert.match(store.faults[0] ?? "", /routes\.yaml: to is there twice at line 3, column 1: /);
  assert.deepEqual(names(), ["a.example"]);
  writeFileSync(path, yaml("b.example"));
  await until(() => names()[0] === "b.example");
  assert.deepEqual(store.faults, []);
  assert.deepEqual(
    told.map((faults) => faults.length),
    [1, 0],
  );
});

test("a mounted ConfigMap changes with one link", async (t) => {
  const path = folder(t);
  const generation = (name: string, text: string) => {
    mkdirSync(join(path, name));
    writeFileSync(join(path, name, "routes.yaml"), text);
    symlinkSync(name, join(path, "..tmp"));
    renameSync(join(path, "..tmp"), join(path, "..data"));
  };
  generation("..1", yaml("a.example"));
  symlinkSync("..data/routes.yaml", join(path, "routes.yaml"));
  const { names } = await open(t, path);
  const alone = await open(t, join(path, "routes.yaml"));
  assert.deepEqual([names(), alone.names()], [["a.example"], ["a.example"]]);
  generation("..2", yaml("b.example"));
  await until(() => names()[0] === "b.example" && alone.names()[0] === "b.example");
});

test("what has gone altogether is a fault, and the routes stay", async (t) => {
  const path = join(folder(t), "routes");
  mkdirSync(path);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, names } = await open(t, path);
  renameSync(path, `${path}.old`);
  await until(() => store.faults.length > 0);
  assert.deepEqual(store.faults, [`${path}: does not exist: give --routes a file or a directory.`]);
  assert.deepEqual(names(), ["a.example"]);
  renameSync(`${path}.old`, path);
  await until(() => store.faults.length === 0);
});

test("a file that is too large or cannot be read is a fault of its own", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  writeFileSync(join(path, "b.yaml"), `#${" ".repeat(1_048_576)}`);
  mkdirSync(join(path, "c.yaml"));
  using _pipe = pipeAt(join(path, "d.yaml"));
  const { store, names } = await open(t, path);
  assert.deepEqual(names(), ["a.example"]);
  assert.deepEqual(store.faults, [
    `${join(path, "b.yaml")}: it is larger than 1 MiB: put its routes into several files.`,
    `${join(path, "c.yaml")}: it cannot be read: it is a directory.`,
    `${join(path, "d.yaml")}: it cannot be read: it is a pipe, a socket or a device, not a regular file.`,
  ]);
});

/** From now on this fails, each time for want of what the time before was there; how often it did. */
function takeDescriptors(t: TestContext, call: "open" | "readdir") {
  const failed = { times: 0, restore: () => mock.restore() };
  const { mock } = t.mock.method(promises, call, () => {
    failed.times++;
    return Promise.reject(Object.assign(new Error("words"), { code: failed.times % 2 ? "EMFILE" : "ENFILE" }));
  });
  return failed;
}

const lack = (path: string, whose: string) =>
  `${path}: its routes cannot be read: this ${whose} has no file descriptor left.`;

test("files that are not read for want of a descriptor are told once and read as soon as there is one; a start is none", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, told, names } = await open(t, path);
  const failed = takeDescriptors(t, "open");
  await assert.rejects(RouteStore.open({ path, onRead: () => {} }), { code: "EMFILE" });
  writeFileSync(join(path, "a.yaml"), yaml("b.example"));
  await until(() => failed.times > 5);
  assert.deepEqual(names(), ["a.example"]);
  assert.deepEqual(told, [[lack(path, "machine")]]);
  failed.restore();
  await until(() => names()[0] === "b.example");
  assert.deepEqual([store.faults, told.slice(1)], [[], [[]]]);
});

test("a directory that is not listed for want of a descriptor is no other fault, and a later want is told again", async (t) => {
  const path = folder(t);
  writeFileSync(join(path, "a.yaml"), yaml("a.example"));
  const { store, told } = await open(t, path);
  for (const wants of [1, 2]) {
    const failed = takeDescriptors(t, "readdir");
    await assert.rejects(RouteStore.open({ path, onRead: () => {} }), { code: /^E[MN]FILE$/ });
    await until(() => failed.times > 5);
    assert.match(
      store.faults.join(),
      /^[^,]*: its routes cannot be read: this (process|machine) has no file descriptor left\.$/,
    );
    assert.equal(told.length, 2 * wants - 1);
    failed.restore();
    await until(() => store.faults.length === 0);
    assert.deepEqual(told.at(-1), []);
  }
});

test("a want of descriptors leaves the faults that there are, which are not told again after it", async (t) => {
  const path = folder(t);
  for (const [name, to] of Object.entries({ a: "10.0.0.1:1", b: "nowhere" })) {
    writeFileSync(join(path, `${name}.yaml`), yaml(`${name}.example`, to));
  }
  const { store, told } = await open(t, path);
  const [fault = "", ...others] = store.faults;
  assert.match(fault, /b\.yaml: /);
  assert.deepEqual(others, []);
  const failed = takeDescriptors(t, "readdir");
  await until(() => failed.times > 5);
  assert.deepEqual(store.faults, [fault, lack(path, failed.times % 2 ? "process" : "machine")]);
  failed.restore();
  await until(() => store.faults.length === 1);
  assert.deepEqual([store.faults, told.slice(1)], [[fault], [[]]]);
});
