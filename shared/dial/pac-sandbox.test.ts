import assert from "node:assert/strict";
import childProcess, { type ChildProcess, type ForkOptions } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { isIPv4 } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, sep } from "node:path";
import { type TestContext, test } from "node:test";
import { evaluatePac, type PacQuestion } from "./pac-sandbox.ts";

const { fork } = childProcess;
const PROGRAM = join(import.meta.dirname, `pac-process${extname(import.meta.filename)}`);

const ANSWERS: readonly [title: string, body: string, answer: string | RegExp][] = [
  ["an answer comes back", 'return "PROXY a:1; DIRECT"', "PROXY a:1; DIRECT"],
  [
    "URL and host are those of the destination",
    'return url + " " + host',
    "https://culvert.example.com/ culvert.example.com",
  ],
  ["names are matched", 'return dnsDomainIs(host, ".example.com") && shExpMatch(host, "c*.com") ? "y" : "n"', "y"],
  ["names are resolved", 'return dnsResolve("localhost") + isResolvable("localhost")', "127.0.0.1true"],
  ["networks are matched", 'return isInNet("127.0.0.1", "127.0.0.0", "255.0.0.0") ? "y" : "n"', "y"],
  ["no answer is an empty one", "return null", ""],
  ["alert() has no effect", 'alert("x"); return "DIRECT"', "DIRECT"],
  [
    "nothing of Node's or a browser's is there",
    "return typeof process + typeof require + typeof fetch + typeof globalThis.process",
    "undefined".repeat(4),
  ],
];

for (const [title, body, answer] of ANSWERS) {
  test(`${title}`, async () => {
    assert.equal(await evaluate(pac(body)), answer);
  });
}

test("this machine's address is known without a packet", async () => {
  assert.ok(isIPv4(await evaluate(pac("return myIpAddress()"))));
});

const FAILURES: readonly [title: string, script: string, sentence: RegExp][] = [
  ["an exception is the problem", pac('throw new Error("no luck")'), /^failed: no luck$/],
  ["a script that cannot be parsed is the problem", "<html>", /^failed: Line 1: /],
  ["a script without the function is the problem", "var a = 1;", /^failed: FindProxyForURL is not defined$/],
  ["an answer that is no text is the problem", pac("return 3"), /^failed: .* a number instead of a string$/],
  ["an answer without end is not taken", pac('return "PROXY a:1; ".repeat(1e6)'), /^failed: it answered 11000000 char/],
  ["an endless error is shortened", pac('throw new Error("x".repeat(1e7))'), /^failed: x{197}\.\.\.$/],
  ["an answer that never comes is the problem", pac("return new Promise(function () {})"), /^ended without an answer/],
  ["too deep a recursion breaks its own process only", pac("return FindProxyForURL(url, host)"), /^(failed|ended)/],
];

for (const [title, script, sentence] of FAILURES) {
  test(title, () => failsWith(evaluate(script), sentence));
}

const ENDLESS: readonly [title: string, script: string][] = [
  ["in the function", pac("while (true) {}")],
  ["outside of it", "while (true) {}"],
  ["in what the answer is made of", pac("return { toString: function () { while (true) {} } } + ''")],
];

for (const [where, script] of ENDLESS) {
  test(`an endless loop ${where} is ended`, () => failsWith(evaluate(script, 500), /^took longer than 0\.5 s$/));
}

test("memory without end is not given", async () => {
  const script = pac("var all = []; while (true) all = all.concat(all, [1])");
  await failsWith(evaluate(script), /^failed: out of memory$/);
});

test("a script has 64 MiB, and not what its process could have", async () => {
  const holding = (mebibytes: number): string =>
    pac(
      `var all = []; for (var i = 0; i < ${mebibytes}; i++) all.push("x".repeat(1048576) + i); return "" + all.length`,
    );
  assert.equal(await evaluate(holding(32)), "32");
  await failsWith(evaluate(holding(100)), /^failed: out of memory$/);
});

test("an endless loop whose parent is gone ends by itself", async (t) => {
  const child = fork(PROGRAM, { env: {}, stdio: ["ignore", "ignore", "ignore", "ipc"] });
  t.after(() => child.kill("SIGKILL"));
  const signal = AbortSignal.timeout(30_000);
  await once(child, "message", { signal });
  const question: PacQuestion = { ...DESTINATION, script: pac("while (true) {}"), timeoutMs: 100 };
  await new Promise((resolve) => child.send(question, resolve));
  child.disconnect();
  const [, killedBy] = await once(child, "exit", { signal });
  assert.equal(killedBy, null);
});

const SKIP = extname(PROGRAM) === ".ts" && "a TypeScript source is not confined";

test("the process of a script has no environment, and may read its own modules and nothing else", {
  skip: SKIP,
}, async (t) => {
  const forked: ForkOptions[] = [];
  forkBy(t, (program, options) => {
    forked.push(options);
    return fork(program, options);
  });
  assert.equal(await evaluate(pac('return "DIRECT"')), "DIRECT");
  const [{ env, execArgv = [] } = {}] = forked;
  assert.deepEqual(env, {});
  assert.match(execArgv[0] ?? "", /^--(experimental-)?permission$/);
  const readable = execArgv.flatMap((flag) => /^--allow-fs-read=(.*)$/.exec(flag)?.[1] ?? []);
  assert.ok(readable.length > 2, `${execArgv}`);
  for (const path of readable) {
    const isPackage = path.includes(`${sep}node_modules${sep}`) && !path.endsWith(`${sep}node_modules${sep}`);
    assert.ok(path === PROGRAM || isPackage, path);
  }
});

for (const message of ["null", '"ready?"', "{}", '{ "result": 1 }', '{ "result": "DIRECT", "problem": 1 }']) {
  test(`a process that sends ${message} has given no answer`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "culvert-pac-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const program = join(folder, "program.mjs");
    writeFileSync(program, `process.send(${message}); process.on("message", () => {});`);
    forkBy(t, (_program, options) => fork(program, { ...options, execArgv: [] }));
    await failsWith(evaluate(""), /^sent an invalid answer$/);
  });
}

/** Starts processes by that function until the test is over. */
function forkBy(t: TestContext, start: (program: string, options: ForkOptions) => ChildProcess): void {
  const { mock } = t.mock.method(childProcess, "fork", start as typeof fork);
  syncBuiltinESMExports();
  t.after(() => {
    mock.restore();
    syncBuiltinESMExports();
  });
}

test("an abort ends it, and no listener for it stays behind an answer", async () => {
  const abort = new AbortController();
  await evaluatePac({ script: pac('return "DIRECT"'), ...DESTINATION }, abort.signal);
  assert.deepEqual(getEventListeners(abort.signal, "abort"), []);
  const evaluating = evaluatePac({ script: pac("while (true) {}"), ...DESTINATION }, abort.signal);
  abort.abort();
  await assert.rejects(evaluating, /was not done when its answer was wanted/);
  await assert.rejects(evaluatePac({ script: "", ...DESTINATION }, abort.signal), /was not done/);
});

const DESTINATION = { url: "https://culvert.example.com/", host: "culvert.example.com", timeoutMs: 30_000 };

async function failsWith(evaluating: Promise<string>, sentence: RegExp): Promise<void> {
  await assert.rejects(evaluating, ({ message }: Error) => {
    assert.match(message, sentence);
    return true;
  });
}

function evaluate(script: string, timeoutMs = DESTINATION.timeoutMs): Promise<string> {
  return evaluatePac({ ...DESTINATION, script, timeoutMs }, AbortSignal.timeout(60_000));
}

function pac(body: string): string {
  return `function FindProxyForURL(url, host) { ${body} }`;
}
