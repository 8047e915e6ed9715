import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { FileVersion, installLine, KerberosTickets, kerberosFrom } from "./kerberos.ts";

test("the line that installs kerberos puts it where a module of ours finds it, and nobody's packages are taken away", (t) => {
  const root = folder(t);
  const ours = join(root, "my apps", "culvert");
  const module = join(ours, "dist", "auth.js");
  mkdirSync(dirname(module), { recursive: true });
  assert.equal(installLine(ours), `npm install --prefix '${dirname(ours)}' kerberos@7`);
  install(join(dirname(ours), "node_modules"));
  assert.match(createRequire(module).resolve("kerberos"), /my apps.node_modules.kerberos/);

  const dependency = join(root, "project", "node_modules", "@culvert-gateway", "culvert");
  mkdirSync(dependency, { recursive: true });
  assert.equal(installLine(dependency), "npm install --global kerberos@7", "a folder of npm's own");
  writeFileSync(join(root, "project", "package.json"), "{}");
  assert.equal(installLine(dependency), `npm install --prefix ${join(root, "project")} kerberos@7`);
});

test("the line names the major that is asked for, and a folder above ours", async () => {
  const { peerDependencies } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.equal(peerDependencies.kerberos, "^7.0.0");
  const above = dirname(process.cwd());
  await assert.rejects(kerberosFrom("kerberos-of-nobody"), ({ message }: Error) =>
    message.includes(installLine(join(above, "x"))),
  );
});

function install(modules: string): void {
  const here = join(modules, "kerberos");
  mkdirSync(here, { recursive: true });
  writeFileSync(join(here, "index.js"), "");
}

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "culvert-kerberos-"));
  t.after(() => rmSync(made, { recursive: true }));
  return made;
}

const MINUTE = 60_000;

type Named = "keytab" | "cache";

/** Tickets with a file of this kind that the environment names. */
function prepared(t: TestContext, named: Named = "keytab") {
  const file = join(folder(t), `agent.${named}`);
  const write = (content: string): void => writeFileSync(file, content);
  write("an old key");
  const clock = { now: 0 };
  const env = { [named === "keytab" ? "KRB5_CLIENT_KTNAME" : "KRB5CCNAME"]: `FILE:${file}` };
  const pace = new KerberosTickets(env, () => clock.now);
  const tries: number[] = [];
  const fail = (meanwhile: () => void = () => {}): Promise<string> =>
    pace.take(async () => {
      tries.push(clock.now / MINUTE);
      meanwhile();
      throw new Error("cannot find mechanisms");
    }, never());
  return { clock, pace, tries, fail, write };
}

test("a keytab that gives no ticket is tried four times in half an hour at most, by however many at once", async (t) => {
  const { clock, tries, fail } = prepared(t);
  for (; clock.now < 90 * MINUTE; clock.now += MINUTE / 2) {
    const ends = await Promise.allSettled([fail(), fail(), fail()]);
    const [last] = ends.slice(-1);
    assert.match(`${last?.status === "rejected" && last.reason.message}`, /agent\.keytab gave no .* again for \d+ min/);
  }
  assert.deepEqual(tries, [0, 2, 6, 14, 30, 60]);
});

test("another keytab is tried at once, and one that gave a ticket begins anew", async (t) => {
  const { pace, tries, fail, write } = prepared(t);
  await assert.rejects(fail());
  await assert.rejects(fail());
  assert.equal(tries.length, 1);
  write("a new key, which is longer");
  assert.equal(await pace.take(async () => "ticket", never()), "ticket");
  await assert.rejects(fail(), /cannot find mechanisms/);
});

test("without a keytab in the environment there may be one all the same: each failure makes us wait, until kinit was run", async (t) => {
  const { clock, tries, fail, write } = prepared(t, "cache");
  for (; clock.now <= 30 * MINUTE; clock.now += MINUTE / 2) await assert.rejects(fail());
  await assert.rejects(fail(), /this machine gave no Kerberos ticket and is not tried again for .* run kinit/);
  assert.deepEqual(tries, [0, 2, 6, 14, 30]);
  write("tickets of another day");
  await assert.rejects(fail(), /cannot find mechanisms/);
});

test("what the library itself writes into the ticket cache when it has failed is no reason to try again", async (t) => {
  const { tries, fail, write } = prepared(t, "cache");
  await assert.rejects(fail(() => write("not again before noon")));
  await assert.rejects(fail());
  assert.equal(tries.length, 1);
});

test("who is aborted leaves the queue, and a failure that comes late is that of all who wait and of the next", async (t) => {
  const { pace } = prepared(t, "cache");
  let fail = (_reason: Error): void => assert.fail("nothing was begun");
  let begun = 0;
  const slow = (): Promise<never> => {
    begun++;
    return new Promise((_resolve, reject) => {
      fail = reject;
    });
  };
  for (let attempt = 0; attempt < 30; attempt++) {
    const abort = new AbortController();
    const ends = [1, 2, 3].map(() => pace.take(slow, abort.signal));
    while (begun === 0) await new Promise(setImmediate);
    abort.abort(new Error("its time is over"));
    for (const end of ends) await assert.rejects(end, /its time is over/);
  }
  const waiting = pace.take(slow, never());
  fail(new Error("cannot contact any KDC"));
  await assert.rejects(waiting, /gave no Kerberos ticket/);
  await assert.rejects(pace.take(slow, never()), /gave no Kerberos ticket/);
  assert.equal(begun, 1);
});

test("a keytab that cannot be looked at keeps nobody from a ticket, and no failure from its pace", async () => {
  const pace = new KerberosTickets({ KRB5_CLIENT_KTNAME: "/dev/null/keytab" }, () => 0);
  assert.equal(await pace.take(async () => "ticket", never()), "ticket");
  const fail = () => pace.take(() => Promise.reject(new Error("cannot find mechanisms")), never());
  await assert.rejects(fail(), /cannot find mechanisms/);
  await assert.rejects(fail(), /\/dev\/null\/keytab gave no Kerberos ticket/);
});

test("who is aborted while the files are looked at begins nothing", async (t) => {
  const { pace } = prepared(t);
  const abort = new AbortController();
  const taken = pace.take(async () => assert.fail("it was begun"), abort.signal);
  abort.abort(new Error("its time is over"));
  await assert.rejects(taken, /its time is over/);
  assert.equal(await pace.take(async () => "ticket", never()), "ticket");
});

test("who waits for a ticket that comes late asks for one of its own, one after the other", async (t) => {
  const { pace } = prepared(t);
  let underWay = 0;
  const take = (name: string): Promise<string> =>
    pace.take(async () => {
      assert.equal(++underWay, 1);
      await new Promise(setImmediate);
      underWay--;
      return name;
    }, never());
  assert.deepEqual(await Promise.all(["one", "two", "three"].map(take)), ["one", "two", "three"]);
});

function never(): AbortSignal {
  return new AbortController().signal;
}

test("a file that changes has another version, and one that cannot be looked at has one as well", async (t) => {
  const path = join(folder(t), "cache");
  const version = new FileVersion(path);
  assert.equal(await version.read(), "ENOENT");
  writeFileSync(path, "ticket");
  const first = await version.read();
  assert.equal(await version.read(), first);
  writeFileSync(path, "another ticket");
  assert.notEqual(await version.read(), first);
  assert.equal(await new FileVersion(join(path, "below")).read(), "ENOTDIR");
  const forbidden = new FileVersion(path, async () => {
    throw Object.assign(new Error("permission denied"), { code: "EACCES" });
  });
  assert.equal(await forbidden.read(), "EACCES");
});

test("a disk that does not answer is asked once, holds nobody for long, and changes nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const answers: ((stats: { ino: number; size: number; mtimeMs: number }) => void)[] = [];
  const version = new FileVersion("/net/keytab", () => new Promise((resolve) => answers.push(resolve)));
  const seen = version.read();
  answers[0]?.({ ino: 1, size: 2, mtimeMs: 3 });
  assert.equal(await seen, "1 2 3");
  for (let reading = 0; reading < 3; reading++) {
    const late = Promise.all([version.read(), version.read()]);
    t.mock.timers.tick(1_000);
    assert.deepEqual(await late, ["1 2 3", "1 2 3"]);
  }
  assert.equal(answers.length, 2);
  const back = version.read();
  answers[1]?.({ ino: 1, size: 9, mtimeMs: 4 });
  assert.equal(await back, "1 9 4");
});
