import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { Names, type NamesOptions } from "./lookup.ts";
import { type NameAnswer, type NameServerOptions, startNameServer } from "./testing/name-server.ts";

type Answer = (name: string, type: "A" | "AAAA", via: "udp" | "tcp") => NameAnswer;

/** Only IPv4 addresses, and no such host for the rest. */
function knows(table: Readonly<Record<string, NameAnswer>>): Answer {
  return (name, type) => {
    if (!Object.hasOwn(table, name)) return "NXDOMAIN";
    const answer = table[name];
    return type === "A" || !Array.isArray(answer) ? answer : [];
  };
}

async function world(t: TestContext, answer: Answer, more: NamesOptions & NameServerOptions = {}) {
  const folder = mkdtempSync(join(tmpdir(), "culvert-names-"));
  const server = await startNameServer(answer, more);
  t.after(async () => {
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
  });
  const paths = { resolv: join(folder, "resolv"), hosts: join(folder, "hosts"), nsswitch: join(folder, "nsswitch") };
  const put = (file: keyof typeof paths, text: string): void => {
    writeFileSync(`${paths[file]}.new`, text);
    renameSync(`${paths[file]}.new`, paths[file]);
  };
  put("resolv", "nameserver 127.0.0.1\nsearch one.test two.test\noptions ndots:2 timeout:1 attempts:1\n");
  const getaddrinfo = () => assert.fail("getaddrinfo is not asked");
  const names = new Names({ port: server.port, paths, getaddrinfo, platform: "linux", ...more });
  const find = (host: string): Promise<string> =>
    names.find(host).then(
      (found) => found.map(({ address }) => address).join(" "),
      (error: NodeJS.ErrnoException) => error.code ?? String(error),
    );
  return { ...server, put, names, find };
}

test("two hundred names whose name server is silent hold up no other name", async (t) => {
  const { find, put } = await world(t, (name) => (name.startsWith("silent") ? undefined : ["10.0.0.1"]));
  put("resolv", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n");
  let isOver = false;
  for (let i = 0; i < 200; i++) void find(`silent-${i}.test.`).then(() => (isOver = true));
  assert.match(await find("good.test."), /^10\.0\.0\.1/);
  assert.equal(isOver, false);
});

test("names with few dots are searched first, others last, and a dot at the end asks for one name", async (t) => {
  const { find, asked } = await world(t, knows({ "a.two.test": ["10.0.0.2"], "x.y.z": ["10.0.0.3"], b: ["10.0.0.4"] }));
  const questions = async (host: string) => {
    asked.length = 0;
    const found = await find(host);
    return [found, ...asked.filter((each) => each.startsWith("A ")).map((each) => each.slice(2))];
  };
  assert.deepEqual(await questions("a"), ["10.0.0.2", "a.one.test", "a.two.test"]);
  assert.deepEqual(await questions("b"), ["10.0.0.4", "b.one.test", "b.two.test", "b"]);
  assert.deepEqual(await questions("x.y.z"), ["10.0.0.3", "x.y.z"]);
  assert.deepEqual(await questions("x.y.w"), ["ENOTFOUND", "x.y.w", "x.y.w.one.test", "x.y.w.two.test"]);
  assert.deepEqual(await questions("a."), ["ENOTFOUND", "a"]);
});

test("the hosts file comes before DNS, and a change of it, of resolv.conf or of nsswitch.conf counts at once", async (t) => {
  const { find, put, asked } = await world(t, knows({ "a.one.test": ["10.0.0.2"], "a.three.test": ["10.0.0.9"] }));
  assert.equal(await find("a"), "10.0.0.2");
  put("hosts", "10.1.1.1 other A # a comment\n10.1.1.2\ta\n");
  assert.equal(await find("a"), "10.1.1.1 10.1.1.2");
  put("nsswitch", "passwd: files\nhosts:\tdns files\n");
  assert.equal(await find("a"), "10.0.0.2");
  put("hosts", "");
  put("resolv", "nameserver 127.0.0.1\nsearch three.test.\n");
  assert.equal(await find("a"), "10.0.0.9");
  asked.length = 0;
  for (const host of ["localhost", "x.LOCALHOST."])
    assert.match(await find(host), /^(127\.0\.0\.1 ::1|::1 127\.0\.0\.1)$/);
  assert.equal(await find("127.1"), "127.0.0.1");
  assert.deepEqual(asked, []);
});

test("failures have the codes of getaddrinfo", async (t) => {
  const { find, put } = await world(
    t,
    knows({
      empty: [],
      broken: "SERVFAIL",
      refused: "REFUSED",
      silent: undefined,
      "half.one.test": "SERVFAIL",
      half: ["10.0.0.1"],
    }),
  );
  assert.equal(await find("half"), "10.0.0.1");
  put("resolv", "nameserver 127.0.0.1\nsearch .\noptions timeout:1 attempts:1\n");
  const hosts = ["empty", "missing", "broken", "refused", "silent", `${"x".repeat(64)}.test`];
  assert.deepEqual(await Promise.all(hosts.map(find)), [
    "ENOTFOUND",
    "ENOTFOUND",
    "EAI_AGAIN",
    "EAI_FAIL",
    "EAI_AGAIN",
    "ENOTFOUND",
  ]);
});

test("an answer that is too long for UDP is asked for over TCP", async (t) => {
  const many = Array.from({ length: 60 }, (_, i) => `10.0.1.${i}`);
  const { find } = await world(t, (_name, type, via) => (via === "udp" ? "truncated" : type === "A" ? many : []));
  assert.equal(await find("many.test."), many.join(" "));
});

test("a name whose question for IPv6 is dropped has its IPv4 addresses", async (t) => {
  const { find, put } = await world(t, (_name, type) => (type === "A" ? ["10.0.0.1"] : undefined));
  put("resolv", "nameserver 127.0.0.1\noptions timeout:30\n");
  assert.equal(await find("a.test."), "10.0.0.1");
});

test("an answer that takes longer than a question waits to be sent again is taken", async (t) => {
  const { find, put, asked } = await world(t, knows({ "a.test": ["10.0.0.1"] }), { delayMs: 1_500 });
  put("resolv", "nameserver 127.0.0.1\noptions timeout:5\n");
  assert.equal(await find("a.test."), "10.0.0.1");
  assert.ok(asked.length > 2);
});

test("the next name server is asked beside one that is silent, and the first that knows the name is believed", async (t) => {
  const { find, put, asked, port } = await world(t, knows({ "a.test": ["10.0.0.1"], "b.test": ["10.0.0.2"] }));
  const dead = await startNameServer(() => undefined, { host: "127.0.0.2", port });
  t.after(() => dead[Symbol.asyncDispose]());
  put("resolv", "nameserver 127.0.0.2\nnameserver 127.0.0.1\noptions timeout:30\n");
  assert.deepEqual(await Promise.all(["a.test.", "b.test."].map(find)), ["10.0.0.1", "10.0.0.2"]);
  assert.equal(asked.length, 4);
});

test("a name that leaves the first name server silent takes no other name to one that does not know it", async (t) => {
  const inside = (name: string, type: "A" | "AAAA") =>
    name === "silent.test" ? undefined : knows({ "good.test": ["10.0.0.1"] })(name, type, "udp");
  const { find, put, port } = await world(t, inside);
  const outside = await startNameServer(() => "NXDOMAIN", { host: "127.0.0.2", port });
  t.after(() => outside[Symbol.asyncDispose]());
  put("resolv", "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:2 attempts:1\n");
  assert.equal(await find("silent.test."), "ENOTFOUND", "the first one has had its time");
  assert.equal(await find("good.test."), "10.0.0.1");
});

test("an answer that takes a second and more is not overtaken by a server that does not know the name", async (t) => {
  const { find, put, port } = await world(t, knows({ "a.test": ["10.0.0.1"] }), { delayMs: 1_500 });
  const outside = await startNameServer(() => "NXDOMAIN", { host: "127.0.0.2", port });
  t.after(() => outside[Symbol.asyncDispose]());
  put("resolv", "nameserver 127.0.0.1\nnameserver 127.0.0.2\noptions timeout:30\n");
  assert.equal(await find("a.test."), "10.0.0.1");
  assert.ok(outside.asked.length > 0);
});

test("one name too many at once is refused, and a look-up that gave up makes room", async (t) => {
  const { names, find } = await world(t, () => undefined, { maxRunning: 1 });
  const first = names.find("a.test.", 300).catch(({ code }) => code);
  assert.equal(await find("b.test."), "EBUSY");
  assert.equal(await first, "EAI_AGAIN");
  assert.equal(await find("b.test."), "EAI_AGAIN");
});

test("look-ups of one name at one time share a question, and a later one asks again", async (t) => {
  const { find, asked } = await world(t, knows({ "a.test": ["10.0.0.1"] }));
  await Promise.all([find("a.test."), find("a.test."), find("a.test.")]);
  assert.equal(asked.length, 2);
  await find("a.test.");
  assert.equal(asked.length, 4);
});

test("who asks later for a name that is being looked up has all of its own time", async (t) => {
  const { names, find } = await world(t, knows({ "a.test": ["10.0.0.1"] }), { delayMs: 600 });
  const hasty = names.find("a.test.", 100).catch(({ code }) => code);
  const patient = find("a.test.");
  assert.deepEqual([await hasty, await patient], ["EAI_AGAIN", "10.0.0.1"]);
});

test("getaddrinfo is asked where a name server is link-local with a zone, which c-ares drops", async (t) => {
  const getaddrinfo = async () => [{ address: "10.0.0.7", family: 4 }];
  const { find, put, asked } = await world(t, knows({}), { getaddrinfo });
  put("resolv", "nameserver fe80::1%lo\n");
  assert.deepEqual([await find("a.test"), asked], ["10.0.0.7", []]);
});

test("getaddrinfo is asked for sources of nsswitch.conf that only it knows, and need not answer", async (t) => {
  let system: (host: string) => Promise<{ address: string; family: number }[]> = () => new Promise(() => {});
  const { find, put } = await world(t, knows({ "a.test": ["10.0.0.1"] }), { getaddrinfo: (host) => system(host) });
  for (const line of [
    "files dns myhostname",
    "files mdns4_minimal [NOTFOUND=return] dns",
    "files [!UNAVAIL=return] dns",
  ]) {
    put("nsswitch", `hosts: ${line}\n`);
    system = () => new Promise(() => {});
    assert.deepEqual([await find("a.test."), await find("b.test.")], ["10.0.0.1", "ENOTFOUND"], line);
    system = async () => [{ address: "10.2.2.2", family: 4 }];
    const isLast = line.startsWith("files dns");
    assert.deepEqual([await find("a.test."), await find("b.test.")], [isLast ? "10.0.0.1" : "10.2.2.2", "10.2.2.2"]);
  }
});

test("where getaddrinfo alone knows hosts it has all the time of a look-up", async (t) => {
  let answered = 0;
  const getaddrinfo = async () => {
    await sleep(2_500); // longer than it has beside our own questions
    answered++;
    return [{ address: "10.0.0.7", family: 4 }];
  };
  const { find, put } = await world(t, knows({}), { getaddrinfo });
  const lines = ["files resolve", "resolve files", "resolve"];
  for (const line of lines) {
    put("nsswitch", `hosts: ${line}\n`);
    assert.equal(await find("a.test."), "10.0.0.7", line);
  }
  assert.equal(answered, lines.length);
});

test("a look-up without a file descriptor left says so", async (t) => {
  const { find } = await world(t, knows({}));
  assert.equal(await find("a.test."), "ENOTFOUND");
  const script = `
    import { openSync } from "node:fs";
    const { NAMES, Names } = await import(process.argv[1]);
    const getaddrinfo = () => Promise.reject(Object.assign(new Error("of a module"), { code: "EINVAL" }));
    const bySystem = new Names({ getaddrinfo, platform: "darwin" });
    const codeOf = (names) => names.find("a.invalid.").then(String, ({ code }) => code);
    const before = [await codeOf(NAMES), await codeOf(bySystem)];
    try { for (;;) openSync("/dev/null"); } catch {}
    process.stderr.write([...before, await codeOf(NAMES), await codeOf(bySystem)].join(" "));`;
  const module = source("lookup.ts", import.meta.url).href;
  const args = [...RUN_SOURCES, "--input-type=module", "-e", script, module];
  const { stderr } = spawnSync("sh", ["-c", 'ulimit -n 200 && exec "$0" "$@"', process.execPath, ...args]);
  assert.match(String(stderr), /^\S+ EINVAL EMFILE EMFILE$/);
});
