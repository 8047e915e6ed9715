import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Pac } from "./pac.ts";
import { formatRoute, type ProxyRoute } from "./proxy-route.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-pac-"));
after(() => rmSync(folder, { recursive: true }));
const path = join(folder, "proxy.pac");
const pac = new Pac(path);

test("the script is asked for each destination, and its answer is ways in order", async () => {
  script('return host === "inside.corp" ? "DIRECT" : "PROXY p1:3128; SOCKS5 p2"');
  assert.deepEqual((await ways("inside.corp")).map(formatRoute), ["direct"]);
  assert.deepEqual((await ways("outside.com")).map(formatRoute), [
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
    assert.deepEqual((await ways(host, port)).map(formatRoute), ["direct"]);
  });
}

test("an answer that is no way, and a script that breaks, are faults that name the script", async () => {
  script('return "TELEPORT now"');
  const at = { fault: "pac", at: path };
  await assert.rejects(ways("a"), {
    ...at,
    message: `the PAC script ${path} names no proxy of a known kind: "TELEPORT now"`,
  });
  script('throw new Error("no luck")');
  await assert.rejects(ways("a"), { ...at, message: `the PAC script ${path} failed: no luck` });
});

function script(body: string): void {
  writeFileSync(path, `function FindProxyForURL(url, host) { ${body} }`);
}

function ways(host: string, port = 443): Promise<readonly ProxyRoute[]> {
  return pac.routes({ host, port }, AbortSignal.timeout(60_000));
}
