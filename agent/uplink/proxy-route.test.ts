import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { testCertificate } from "../../shared/link/testing/ends.ts";
import { KeptProxyTls } from "./proxy-route.ts";

test("a broken --proxy-ca is a fault that names it, until it is mended", async (t) => {
  const { tls, write, lines, ca } = await prepared(t);
  write("half a file");
  assert.throws(
    () => tls.current(),
    (error) =>
      error instanceof RouteFault && error.fault === "proxy_tls" && /^--proxy-ca: .* no PEM/.test(error.message),
  );
  write(ca);
  assert.deepEqual(tls.current().ca, [ca]);
  assert.deepEqual(lines, []);
});

test("a broken new --proxy-ca keeps the old one, and that is said once", async (t) => {
  const { tls, write, lines, ca } = await prepared(t);
  const said = () => lines.map((line) => JSON.parse(line)).map(({ level, reason }) => `${level} ${reason}`);
  write(ca);
  tls.current();
  write("half a file");
  for (let attempt = 0; attempt < 3; attempt++) assert.deepEqual(tls.current().ca, [ca]);
  assert.equal(said().length, 1);
  assert.match(`${said()}`, /^50 --proxy-ca: the CA certificate \S+ holds no PEM certificate/);
  write(ca);
  tls.current();
  write("half a file");
  tls.current();
  assert.equal(said().length, 2, "it is news again");
});

async function prepared(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "culvert-proxy-tls-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const caFile = join(folder, "ca.crt");
  const lines: string[] = [];
  const log = pino({ level: "debug" }, { write: (line) => lines.push(line) });
  const tls = new KeptProxyTls({ caFile, certFile: "", keyFile: "" }, log);
  const { ca } = await testCertificate();
  return { tls, write: (content: string) => writeFileSync(caFile, content), lines, ca };
}
