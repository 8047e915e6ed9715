import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { installLine, kerberosFrom } from "./kerberos.ts";

test("the line that installs kerberos puts it where a module of ours finds it, and nobody's packages are taken away", (t) => {
  const root = folder(t);
  const ours = join(root, "my apps", "culvert");
  const module = join(ours, "dist", "auth.js");
  mkdirSync(dirname(module), { recursive: true });
  assert.equal(installLine(ours), `npm install --prefix '${dirname(ours)}' kerberos@7`);
  install(join(dirname(ours), "node_modules"));
  assert.match(createRequire(module).resolve("kerberos"), /my apps.node_modules.kerberos/);

  const dependency = join(root, "project", "node_modules", "@culvert-gateway", "culvert");
  mkdirSync(dependency, { recursive: true });
  assert.equal(installLine(dependency), "npm install --global kerberos@7", "a folder of npm's own");
  writeFileSync(join(root, "project", "package.json"), "{}");
  assert.equal(installLine(dependency), `npm install --prefix ${join(root, "project")} kerberos@7`);
});

test("the line names the major that is asked for, and a folder above ours", async () => {
  const { peerDependencies } = JSON.parse(readFileSync("package.json", "utf8"));
  assert.equal(peerDependencies.kerberos, "^7.0.0");
  const above = dirname(process.cwd());
  await assert.rejects(kerberosFrom("kerberos-of-nobody"), ({ message }: Error) =>
    message.includes(installLine(join(above, "x"))),
  );
});

function install(modules: string): void {
  const here = join(modules, "kerberos");
  mkdirSync(here, { recursive: true });
  writeFileSync(join(here, "index.js"), "");
}

function folder(t: TestContext): string {
  const made = mkdtempSync(join(tmpdir(), "culvert-kerberos-"));
  t.after(() => rmSync(made, { recursive: true }));
  return made;
}
