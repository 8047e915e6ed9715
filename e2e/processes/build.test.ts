import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { createSite } from "../harness/binaries.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";

const DIST = join(ROOT, "dist");

function built(): { readonly name: string; readonly text: string }[] {
  const names = readdirSync(DIST, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".js"));
  assert.ok(names.length > 10, "there is a build");
  return names.map((name) => ({ name, text: readFileSync(join(DIST, name), "utf8") }));
}

test("the build imports no module of Node.js: the import of node:http alone takes 13 MiB on Node.js 24", () => {
  const imports = built().flatMap(({ text }) => [...text.matchAll(/^(?:import|export)\b.*? from "(node:[^"]+)"/gm)]);
  assert.deepEqual(
    imports.map(([, specifier]) => specifier),
    [],
  );
});

test("the build is ASCII: V8 would keep each character of a file in two bytes", () => {
  const others = built().flatMap(({ name, text }) => (Buffer.byteLength(text) === text.length ? [] : [name]));
  assert.deepEqual(others, []);
});

/** Prints which of these modules of Node.js were loaded, when the process ends. */
const PRINT_LOADED = `data:text/javascript,${encodeURIComponent(
  'process.on("exit", () => console.error("loaded:", process.moduleLoadList.filter((name) => /NativeModule (http2|zlib|internal.crypto.webcrypto)$/.test(name)).join()));',
)}`;

test("server and agent do not load what Node.js has for HTTP/2, compression and Web Cryptography", async () => {
  using site = await createSite();
  const options = { nodeArgs: ["--import", PRINT_LOADED] };
  await using server = await site.startServer({}, options);
  await using agent = await site.startAgent({}, options);
  await using echo = await TARGETS.echo();
  const connection = await site.open("uds", echo.address);
  connection.socket.destroy();
  for (const process of [agent, server]) {
    process.signal("SIGTERM");
    assert.equal(await process.waitForLog(/^loaded:/), "loaded: ");
  }
});

test("server and agent load few files of the build at their start: each costs the time to find, read and link it", async () => {
  using site = await createSite();
  using covered = new TempDir();
  const options = { env: { NODE_V8_COVERAGE: covered.path } };
  await using server = await site.startServer({}, options);
  await using agent = await site.startAgent({}, options);
  for (const process of [agent, server]) await process.stop();
  const reports = readdirSync(covered.path);
  assert.equal(reports.length, 2);
  for (const report of reports) {
    const { result } = JSON.parse(readFileSync(join(covered.path, report), "utf8")) as { result: { url: string }[] };
    const loaded = result.filter(({ url }) => url.includes("/dist/"));
    assert.ok(loaded.length > 5 && loaded.length <= 20, loaded.map(({ url }) => url).join("\n"));
  }
});
