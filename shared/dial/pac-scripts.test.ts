import assert from "node:assert/strict";
import { test } from "node:test";
import { evaluatePac } from "./pac-sandbox.ts";

const HOST = "culvert.example.com";

/** Ways in which scripts use the functions of PAC, which give their answer at once in browsers. */
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

const RIGHT = 'return "PROXY right:1"';

/** Whole scripts. */
const SCRIPTS: readonly [title: string, script: string, answer: string][] = [
  ["a function", `function FindProxyForURL(url, host) { ${RIGHT} }`, "PROXY right:1"],
  ["a variable", `var FindProxyForURL = function (url, host) { ${RIGHT} };`, "PROXY right:1"],
  ["a constant", 'const FindProxyForURL = (url, host) => "PROXY right:1";', "PROXY right:1"],
  ["FindProxyForURLEx alone", `function FindProxyForURLEx(url, host) { ${RIGHT} }`, "PROXY right:1"],
  [
    "both functions",
    `function FindProxyForURLEx(url, host) { return "PROXY wrong:1" } function FindProxyForURL(url, host) { ${RIGHT} }`,
    "PROXY right:1",
  ],
  ["a function of PAC of its own", `function isInNet() { ${RIGHT} } var FindProxyForURL = isInNet`, "PROXY right:1"],
  [
    "a look-up before the function",
    'var ip = dnsResolve("localhost"); function FindProxyForURL() { return ip }',
    "127.0.0.1",
  ],
  [
    "a byte order mark and Windows' line ends",
    `\uFEFF// x\r\nfunction FindProxyForURL(u, h)\r\n{ ${RIGHT} }\r\n`,
    "PROXY right:1",
  ],
  [
    "a list of networks and domains, as generators write it",
    `var proxy = "PROXY p:3128", direct = "DIRECT";
     var domains = { "example.com": 1, "corp.example": 1 }, nets = [["10.0.0.0", "255.0.0.0"], ["127.0.0.0", "255.0.0.0"]];
     function FindProxyForURL(url, host) {
       var ip = dnsResolve(host) || dnsResolve("localhost");
       for (var i = 0; i < nets.length; i++) if (isInNet(ip, nets[i][0], nets[i][1])) var inside = true;
       for (var at = host; at; at = ~at.indexOf(".") ? at.substring(at.indexOf(".") + 1) : "")
         if (Object.hasOwnProperty.call(domains, at)) return inside ? proxy + "; " + direct : "PROXY wrong:1";
       return direct;
     }`,
    "PROXY p:3128; DIRECT",
  ],
  [
    "a company's script with conditions one after the other",
    `function FindProxyForURL(url, host) {
       host = host.toLowerCase();
       if (isPlainHostName(host) || shExpMatch(host, "*.local") || localHostOrDomainIs(host, "www.corp")) return "DIRECT";
       if (isInNet(dnsResolve(host), "192.168.0.0", "255.255.0.0") || url.substring(0, 5) == "http:") return "DIRECT";
       switch (convert_addr(myIpAddress()) & 0) { case 0: return weekdayRange("SUN", "SAT") ? "HTTPS p:3129" : "DIRECT" }
     }`,
    "HTTPS p:3129",
  ],
  [
    "a choice by the sum of a host's characters",
    `function FindProxyForURL(url, host) {
       let sum = 0;
       for (const c of host) sum += c.charCodeAt(0);
       return [...Array(2).keys()].map((i) => \`PROXY p\${(sum + i) % 2}:1\`).join("; ");
     }`,
    "PROXY p0:1; PROXY p1:1",
  ],
];

for (const [title, script, answer] of SCRIPTS) {
  test(`a script may be ${title}`, async () => {
    assert.equal(await evaluate(script), answer);
  });
}

test("a script reads this machine's time zone", async (t) => {
  const { TZ } = process.env;
  t.after(() => {
    if (TZ === undefined) delete process.env["TZ"];
    else process.env["TZ"] = TZ;
  });
  process.env["TZ"] = "Asia/Kolkata";
  const body = 'const began = new Date(0); return began.getHours() + " " + began.getTimezoneOffset()';
  assert.equal(await evaluate(`function FindProxyForURL() { ${body} }`), "5 -330");
});

function evaluate(script: string): Promise<string> {
  const question = { script, url: `https://${HOST}/`, host: HOST, timeoutMs: 30_000 };
  return evaluatePac(question, AbortSignal.timeout(60_000));
}
