import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { isIPv4 } from "node:net";
import { test } from "node:test";
import { evaluatePac, type PacOutside } from "./pac-sandbox.ts";

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
  ["a script that cannot be parsed is the problem", "<html>", /^failed: /],
  ["a script without the function is the problem", "var a = 1;", /^failed: FindProxyForURL(Ex)? is not defined$/],
  ["an answer that is no text is the problem", pac("return 3"), /^failed: .* a number instead of a string$/],
  ["an answer without end is not taken", pac('return "PROXY a:1; ".repeat(1e6)'), /^failed: it answered 11000000 char/],
  [
    "a text without end is not given to a function",
    pac("return '' + isPlainHostName('x'.repeat(1e7))"),
    /^failed: a function of PAC was given 10000000 characters$/,
  ],
  ["an endless error is shortened", pac('throw new Error("x".repeat(1e7))'), /^failed: x{197}\.\.\.$/],
  [
    "an answer that comes later is the problem",
    pac("return new Promise(function () {})"),
    /^failed: .* object instead/,
  ],
  ["too deep a recursion breaks its own thread only", pac("return FindProxyForURL(url, host)"), /^(failed|ended)/],
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

test("a script has 64 MiB", async () => {
  const holding = (mebibytes: number): string =>
    pac(
      `var all = []; for (var i = 0; i < ${mebibytes}; i++) all.push("x".repeat(1048576) + i); return "" + all.length`,
    );
  assert.equal(await evaluate(holding(32)), "32");
  await failsWith(evaluate(holding(100)), /^failed: out of memory$/);
});

test("names that a script looks up have a bound in number, and each in time", async () => {
  const asked: string[] = [];
  const find = async (name: string) => {
    asked.push(name);
    return name.startsWith("silent") ? new Promise<never>(() => {}) : [{ address: "10.0.0.1" }];
  };
  const notes: string[] = [];
  const outside: Partial<PacOutside> = { find, onNote: (note) => notes.push(note), nameTimeoutMs: 500 };
  const again = pac('for (var i = 0; i < 1e3; i++) dnsResolve("a.b"); return dnsResolve("A.B") + dnsResolve("a.b")');
  assert.equal(await evaluate(again, undefined, outside), "10.0.0.110.0.0.1");
  assert.deepEqual(asked.splice(0), ["a.b", "a.b"], "a name is asked for once");
  const many = pac('for (var i = 0; ; i++) dnsResolve("n" + i)');
  await failsWith(evaluate(many, undefined, outside), /^looks up more than 64 names$/);
  assert.equal(asked.splice(0).length, 64);
  assert.equal(await evaluate(pac('return "" + dnsResolve("silent")'), 1_000, outside), "null");
  assert.match(notes.splice(0).join(), /^the name silent, which the PAC script looks up, had no answer within 0\.5 s$/);
  const silent = pac('for (var i = 0; ; i++) dnsResolve("silent" + i)');
  await failsWith(evaluate(silent, undefined, outside), /^waited 1\.5 s for the names that it looks up$/);
});

test("a text that is no name has no address, and nobody is asked", async () => {
  const find = async (name: string) => assert.fail(name);
  const names = ["", "a b", "x".repeat(300), "\\0", "[::1"].map((name) => `dnsResolve(${JSON.stringify(name)})`);
  assert.equal(await evaluate(pac(`return [${names}].join()`), undefined, { find }), ",,,,");
});

test("a script's thread has no environment, prints nothing, and shows none of our paths", async () => {
  const script = pac("try { shExpMatch('a', '(') } catch (error) { return '' + error.stack + error.message }");
  assert.doesNotMatch(await evaluate(script), /pac-functions|file:|node_modules/);
});

const HEAVY: readonly [title: string, script: string][] = [
  ["an endless loop", pac("while (true) {}")],
  ["a regular expression without end", pac("return /^(a+)+$/.test('a'.repeat(64) + 'b') + ''")],
  ["a pattern without end", pac("return shExpMatch('a'.repeat(64) + 'b', '(a+)+') + ''")],
  ["strings without end", pac("var s = 'x'; while (true) s += s + 'x'")],
  ["objects without end", pac("var all = []; while (true) all.push({ a: [all.length] })")],
  ["a recursion without end", pac("return FindProxyForURL(url, host) + 1")],
  ["a text of 32 MiB for a function", pac("return '' + isPlainHostName('x'.repeat(1 << 25))")],
  ["an error of 32 MiB", pac("throw new Error('x'.repeat(1 << 25))")],
];

for (const [title, script] of HEAVY) {
  test(`${title} ends as the script's problem, and the thread of the connections goes on`, async () => {
    let turns = 0;
    const turning = setInterval(() => turns++, 5);
    await assert.rejects(evaluate(script, 400), /^Error: (failed|took longer|ended)/);
    clearInterval(turning);
    assert.ok(turns > 0, "the loop has turned while the script ran");
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

function evaluate(script: string, timeoutMs = DESTINATION.timeoutMs, outside?: Partial<PacOutside>): Promise<string> {
  return evaluatePac({ ...DESTINATION, script, timeoutMs }, AbortSignal.timeout(60_000), outside);
}

function pac(body: string): string {
  return `function FindProxyForURL(url, host) { ${body} }`;
}
