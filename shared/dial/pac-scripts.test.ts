import assert from "node:assert/strict";
import { test } from "node:test";
import { evaluatePac } from "./pac-sandbox.ts";

const HOST = "culvert.example.com";

/** What scripts do with the functions of PAC, which give their answer at once in browsers. */
const FORMS: readonly [title: string, body: string, answer: string][] = [
  ["a method of an address", 'return dnsResolve("localhost").substring(0, 4)', "127."],
  ["parts of this machine's address", 'return "" + myIpAddress().split(".").length', "4"],
  ["a condition", 'return isResolvable("nobody.invalid") ? "PROXY wrong:1" : "PROXY right:1"', "PROXY right:1"],
  ["no address", 'return "" + dnsResolve("nobody.invalid")', "null"],
  ["a function expression", 'var f = function (h) { return dnsResolve(h) }; return f("localhost") + ""', "127.0.0.1"],
  [
    "a method",
    'var net = { is: function (h) { return isInNet(h, "127.0.0.0", "255.0.0.0") } };' +
      ' return net.is("localhost") && !net.is("nobody.invalid") ? "PROXY right:1" : "PROXY wrong:1"',
    "PROXY right:1",
  ],
  [
    "a callback",
    'return ["nobody.invalid", "localhost"].filter(function (h) { return isResolvable(h) }).join()',
    "localhost",
  ],
  [
    "a function of PAC as a callback",
    'return ["nobody.invalid", "localhost"].filter(isResolvable).join()',
    "localhost",
  ],
  ["an arrow function", 'const f = (h) => dnsResolve(h); return f("localhost").split(".")[0]', "127"],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is one in the script
  ["a template string", "return `PROXY ${dnsResolve('localhost')}:3128`", "PROXY 127.0.0.1:3128"],
  ["?.", 'return "" + dnsResolve("nobody.invalid")?.length + dnsResolve("localhost")?.length', "undefined9"],
  ["??", 'return dnsResolve("nobody.invalid") ?? "DIRECT"', "DIRECT"],
  ["catch {}", 'try { dnsResolve("nobody.invalid").length } catch { return "caught" }', "caught"],
  ["a getter", 'return "" + { get ip() { return dnsResolve("localhost") } }.ip', "127.0.0.1"],
  ["a class", 'return new (class { #a = dnsResolve("localhost"); get a() { return this.#a } })().a', "127.0.0.1"],
  ["another name for a function", 'var resolve = dnsResolve; return resolve("localhost")', "127.0.0.1"],
  ["eval", "return eval(\"dnsResolve('localhost')\")", "127.0.0.1"],
  ["a sort", 'return ["b", "a"].sort((x, y) => (isResolvable(x + ".invalid"), x < y ? -1 : 1)).join()', "a,b"],
  ["convert_addr", 'return "" + convert_addr("104.16.41.2")', "1745889538"],
  ["isResolvableEx", 'return "" + isResolvableEx("localhost") + isResolvableEx("nobody.invalid")', "truefalse"],
  ["dnsResolveEx", 'return dnsResolveEx("127.0.0.1") + dnsResolveEx("nobody.invalid")', "127.0.0.1"],
  [
    "isInNetEx",
    'return "" + isInNetEx("10.1.2.3", "10.0.0.0/8") + isInNetEx("2001:db8::1", "2001:db9::/32")',
    "truefalse",
  ],
];

for (const [title, body, answer] of FORMS) {
  test(`a script may use ${title}`, async () => {
    assert.equal(await evaluate(`function FindProxyForURL(url, host) { ${body} }`), answer);
  });
}

function evaluate(script: string): Promise<string> {
  const question = { script, url: `https://${HOST}/`, host: HOST, timeoutMs: 30_000 };
  return evaluatePac(question, AbortSignal.timeout(60_000));
}
