import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Pac, parsePacResult } from "./pac.ts";
import { formatRoute, type ProxyRoute } from "./proxy-route.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-pac-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "proxy.pac");
const pac = new Pac(path);

test("the script is evaluated for each target, and its answer is routes in order", async () => {
  script('return host === "inside.corp" ? "DIRECT" : "PROXY p1:3128; SOCKS5 p2"');
  assert.deepEqual((await routes("inside.corp")).map(formatRoute), ["direct"]);
  assert.deepEqual((await routes("outside.com")).map(formatRoute), [
    `http://p1:3128 (PAC ${path})`,
    `socks5h://p2:1080 (PAC ${path})`,
  ]);
});

for (const [host, port, url] of [
  ["culvert.example.com", 443, "https://culvert.example.com/"],
  ["culvert.example.com", 8443, "https://culvert.example.com:8443/"],
  ["fd00::1", 8443, "https://[fd00::1]:8443/"],
] as const) {
  test(`${host}, port ${port}, is ${url} to the script`, async () => {
    script(`if (url !== "${url}" || host !== "${host}") throw new Error(url + " " + host); return "DIRECT"`);
    assert.deepEqual((await routes(host, port)).map(formatRoute), ["direct"]);
  });
}

test("an unknown answer, and a script that throws, are faults that name the script", async () => {
  script('return "TELEPORT now"');
  const at = { fault: "pac", at: path };
  await assert.rejects(routes("a"), {
    ...at,
    message: `the PAC script ${path} names no proxy of a known kind: "TELEPORT now"`,
  });
  script('throw new Error("no luck")');
  await assert.rejects(routes("a"), { ...at, message: `the PAC script ${path} failed: no luck` });
});

function script(body: string): void {
  writeFileSync(path, `function FindProxyForURL(url, host) { ${body} }`);
}

function routes(host: string, port = 443): Promise<readonly ProxyRoute[]> {
  return pac.routes({ host, port }, AbortSignal.timeout(60_000));
}

const ORIGIN = { from: "PAC", isUnverified: false };

const RESULTS: readonly [text: string, routes: readonly string[] | undefined][] = [
  ["DIRECT", ["direct"]],
  ["PROXY a:3128", ["http://a:3128 (PAC)"]],
  ["HTTP a:3128", ["http://a:3128 (PAC)"]],
  ["HTTPS a:3129", ["https://a:3129 (PAC)"]],
  ["SOCKS a:1081", ["socks5h://a:1081 (PAC)"]],
  ["SOCKS5 a:1081", ["socks5h://a:1081 (PAC)"]],
  ["PROXY a; HTTPS a; SOCKS5 a", ["http://a:80 (PAC)", "https://a:443 (PAC)", "socks5h://a:1080 (PAC)"]],
  ["PROXY [fd00::1]:3128", ["http://[fd00::1]:3128 (PAC)"]],
  ["PROXY a:1; PROXY b:2; DIRECT", ["http://a:1 (PAC)", "http://b:2 (PAC)", "direct"]],
  [" proxy\ta:1 ;;direct; ", ["http://a:1 (PAC)", "direct"]],
  ["", ["direct"]],
  [" ; ", ["direct"]],
  ["SOCKS4 a:1; PROXY b:2", ["http://b:2 (PAC)"]],
  ["PROXY a:1 b:2; DIRECT", ["direct"]],
  ["PROXY", undefined],
  ["PROXY a:99999", undefined],
  ["SOCKS4 a:1", undefined],
  ["undefined", undefined],
  ["[object Object]", undefined],
  ["PROXY http://a:1/", undefined],
];

for (const [text, routes] of RESULTS) {
  test(`${JSON.stringify(text)} is ${routes?.join(", then ") ?? "no answer"}`, () => {
    assert.deepEqual(parsePacResult(text, ORIGIN)?.map(formatRoute), routes);
  });
}

test("only the beginning of an endless list is used", () => {
  assert.equal(parsePacResult("PROXY a:1;".repeat(1_000), ORIGIN)?.length, 32);
});
