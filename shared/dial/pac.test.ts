import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { freePort } from "../../e2e/harness/targets/absent.ts";
import { until } from "../basics/testing/wait.ts";
import { Pac, type PacReadOptions, type PacSource, pacSource, parsePacResult } from "./pac.ts";
import { formatRoute, type ProxyRoute, RouteFault, type RouteFaultCode } from "./proxy-route.ts";
import { serve, serveTls } from "./testing/pac-server.ts";
import { withoutVerification } from "./testing/scripted-proxy.ts";

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

for (const [kind, location] of [
  ["path", path],
  ["file:// URL", pathToFileURL(path).href],
] as const) {
  test(`a file named by its ${kind} is read each time`, async () => {
    const source = pacSource(location);
    assert.equal(source.name, path);
    writeFileSync(path, "\uFEFFone");
    assert.equal(await read(source), "one");
    writeFileSync(path, "two");
    assert.equal(await read(source), "two");
  });
}

test("a file of 1 MiB is read, a larger one refused", async () => {
  const source = pacSource(path);
  writeFileSync(path, Buffer.alloc(1024 * 1024, "x"));
  assert.equal((await read(source)).length, 1024 * 1024);
  writeFileSync(path, Buffer.alloc(1024 * 1024 + 1, "x"));
  await rejectsWith(source, "pac", /is larger than 1 MiB$/);
});

test("files that cannot be read are named with the reason", async () => {
  await rejectsWith(pacSource(join(folder, "nothing")), "pac", /nothing cannot be read: there is no such/);
  await rejectsWith(pacSource(folder), "pac", /cannot be read: it is a directory$/);
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  await rejectsWith(pacSource(pipe), "pac", /cannot be read: it is a pipe, a socket or a device, not a regular file$/);
});

test("an abort ends the wait for a file", async () => {
  writeFileSync(path, "script");
  await rejectsWith(pacSource(path), "timeout", /could not be read in time$/, {}, AbortSignal.abort());
});

test("a URL is fetched again after ten minutes, not before", async (t) => {
  let now = 0;
  let fetched = 0;
  const url = await serve(t, (_request, response) => response.end(`script ${++fetched}`));
  const source = pacSource(url, () => now);
  assert.equal(await read(source), "script 1");
  now += 599_999;
  assert.equal(await read(source), "script 1");
  now += 1;
  assert.equal(await read(source), "script 2");
});

test("a script stays in use while its URL fails, with a note", async (t) => {
  let now = 0;
  let status = 200;
  const url = await serve(t, (_request, response) => response.writeHead(status).end("script"));
  const source = pacSource(`${url}?token=secret`, () => now);
  await read(source);
  status = 503;
  now += 600_000;
  const notes: string[] = [];
  assert.equal(await read(source, notes), "script");
  assert.equal(notes.length, 1);
  assert.match(notes[0] ?? "", /before stays in use: .* answered 503$/);
  assert.ok(!notes[0]?.includes("secret"));
});

test("five redirects are followed", async (t) => {
  const url = await serve(t, ({ url: asked = "" }, response) => {
    const step = Number(/\d$/.exec(asked)?.[0] ?? 0);
    if (step === 5) response.end("script");
    else response.writeHead(302, { location: `/there/${step + 1}` }).end();
  });
  assert.equal(await read(pacSource(url)), "script");
});

test("a server that leads in circles, and one that leads from TLS to none, are faults", async (t) => {
  const circle = await serve(t, (_request, response) => response.writeHead(302, { location: "/proxy.pac" }).end());
  await rejectsWith(pacSource(circle), "pac", /redirects more than 5 times$/);
  const nowhere = await serve(t, (_request, response) => response.writeHead(302).end());
  await rejectsWith(pacSource(nowhere), "pac", /its server answered 302$/);
  const plain = await serve(t, (_request, response) => response.end("forged"));
  const { url, ca } = await serveTls(t, (_request, response) => response.writeHead(302, { location: plain }).end());
  await rejectsWith(pacSource(url), "pac", /its server redirects from https: to http:$/, { ca });
});

test("an https server may come from the CAs of --proxy-ca, and from others not", async (t) => {
  const { url, ca } = await serveTls(t, (_request, response) => response.end("script"));
  assert.equal(await pacSource(url).read(AbortSignal.timeout(30_000), { ca }), "script");
  await rejectsWith(pacSource(url), "pac", /comes from a CA that is not known here: give that CA with --proxy-ca/);
});

test("a script's server is verified even with NODE_TLS_REJECT_UNAUTHORIZED=0", async (t) => {
  const { url } = await serveTls(t, (_request, response) => response.end("forged"));
  withoutVerification(t);
  await rejectsWith(pacSource(url), "pac", /comes from a CA that is not known here/);
});

test("the connection of an answer that is no script is closed, also where its body never ends", async (t) => {
  t.mock.method(AbortSignal, "timeout", () => new AbortController().signal); // nothing else may close it
  let isClosed = false;
  const url = await serve(t, (_request, response) => {
    response.on("close", () => {
      isClosed = true;
    });
    response.writeHead(404).write("x");
  });
  await rejectsWith(pacSource(url), "pac", /its server answered 404$/);
  await until(() => isClosed, "the end of the connection");
});

test("what is no script's source is a fault that names it, without its query", async (t) => {
  const missing = await serve(t, (_request, response) => response.writeHead(404).end());
  await rejectsWith(pacSource(`${missing}?secret`), "pac", /proxy\.pac cannot be fetched: .* 404$/);
  const endless = await serve(t, (_request, response) => {
    const write = (): void => {
      while (response.write(Buffer.alloc(65_536)));
    };
    response.on("drain", write);
    write();
  });
  await rejectsWith(pacSource(endless), "pac", /is larger than 1 MiB$/);
  const broken = await serve(t, ({ socket }) => socket.destroy());
  await rejectsWith(pacSource(broken), "pac", /cannot be fetched: /);
  const refused = `http://127.0.0.1:${await freePort()}/proxy.pac`;
  await rejectsWith(pacSource(refused), "refused", /the PAC script http:.* refused the connection/);
});

test("an abort ends the fetch", async (t) => {
  const abort = new AbortController();
  const url = await serve(t, () => abort.abort());
  await rejectsWith(pacSource(url), "timeout", /could not be fetched in time$/, {}, abort.signal);
});

for (const [location, sentence] of [
  ["ftp://secret/proxy.pac", /^Error: needs a file or an http:/],
  ["http://", /^Error: is not a valid URL$/],
  ["https://anna:secret@wpad/proxy.pac", /^Error: must not contain a user or password$/],
  ["file://secret/proxy.pac", /^Error: is no file:\/\/ URL/],
] as const) {
  test(`${location} is no place for a script`, () => {
    assert.throws(() => pacSource(location), sentence);
    assert.throws(
      () => pacSource(location),
      ({ message }: Error) => !message.includes("secret"),
    );
  });
}

function read(source: PacSource, notes: string[] = []): Promise<string> {
  return source.read(AbortSignal.timeout(30_000), { onNote: (note) => notes.push(note) });
}

async function rejectsWith(
  source: PacSource,
  fault: RouteFaultCode,
  sentence: RegExp,
  reading: PacReadOptions = {},
  signal = AbortSignal.timeout(30_000),
) {
  await assert.rejects(source.read(signal, reading), (error) => {
    assert.ok(error instanceof RouteFault, String(error));
    assert.equal(error.fault, fault);
    assert.match(error.message, sentence);
    assert.ok(!error.message.includes("secret"));
    return true;
  });
}
