import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { RUN_SOURCES, source } from "../shared/runtime/testing/project.ts";
import { createPki } from "./pki/pki.ts";

const MAIN = fileURLToPath(source("main.ts", import.meta.url));

/** No proxy of whoever runs the tests. */
const ENV = { PATH: process.env["PATH"] };

function doctor(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...RUN_SOURCES, MAIN, "doctor", ...args], { env: ENV });
    let [stdout, stderr] = ["", ""];
    child.stdout.on("data", (chunk) => (stdout += String(chunk)));
    child.stderr.on("data", (chunk) => (stderr += String(chunk)));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr }));
  });
}

/** The flags of an agent whose server does not run. */
async function flags(t: TestContext): Promise<string[]> {
  const dir = mkdtempSync(join(tmpdir(), "culvert-doctor-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const { files } = await createPki({ dir });
  // Port 1 is tcpmux: nobody has it.
  const server = ["--server", "wss://127.0.0.1:1", "--ca-cert", files["cluster-ca.crt"]];
  return [...server, "--agent-cert", files["agent.crt"], "--agent-key", files["agent.key"]];
}

test("a report has a line for each step, one sentence for the culprit, and what to do next", async (t) => {
  const { code, stdout, stderr } = await doctor(...(await flags(t)));
  assert.equal(stderr, "");
  assert.equal(code, 1);
  assert.match(
    stdout,
    /^culvert \S+, Node \S+, on \S+, 20\S+Z\n\$ culvert doctor --server wss:.+\n\nwss:\/\/127\.0\.0\.1:1\/culvert\/v1\/tunnel\n\n✓ configuration +\d+ ms {2}certificate CN=culvert-agent/,
  );
  assert.match(stdout, /^– dns +skipped: 127\.0\.0\.1 is an address$/m);
  assert.match(stdout, /^✗ tcp +\d+ ms {2}127\.0\.0\.1:1 refused the connection/m);
  assert.match(stdout, /^– not reached: proxy, tls, upgrade, inner tls, admission, clock, echo, upload, download$/m);
  assert.match(stdout, /\n\n127\.0\.0\.1:1 refuses the connection: .+\nNext: .+\n$/);
});

test("--json is one object with all that was found", async (t) => {
  const { code, stdout } = await doctor(...(await flags(t)), "--json");
  assert.equal(code, 1);
  const { healthy, servers, version, node, date, command } = JSON.parse(stdout);
  assert.match([version, node, date].join(" "), /^\S+ v\d\S+ 20\S+Z$/);
  assert.match(command, /^culvert doctor --server wss:\/\/127\.0\.0\.1:1 .* --json$/);
  assert.deepEqual([healthy, servers.length, servers[0].verdict.culprit], [false, 1, "refused"]);
  assert.equal(servers[0].steps[3].finding.by, "127.0.0.1:1");
});

test("without a certificate or token the way is examined, what is wrong on it is the fault, and the credential is named beside it", async () => {
  const { code, stdout, stderr } = await doctor("--server", "wss://127.0.0.1:1");
  assert.deepEqual([code, stderr], [1, ""]);
  assert.match(stdout, /^✗ configuration +\d+ ms {2}no certificate and no token;/m);
  assert.match(stdout, /^✗ tcp +\d+ ms {2}127\.0\.0\.1:1 refused the connection/m);
  assert.match(
    stdout,
    /\n127\.0\.0\.1:1 refuses the connection: .+\nNext: .+ Beside that: The agent has no credential: /,
  );
  const { servers } = JSON.parse((await doctor("--server", "wss://127.0.0.1:1", "--json")).stdout);
  assert.equal(servers[0].verdict.culprit, "refused");
  assert.equal(servers[0].steps[0].finding.culprit, "no_credential");
});

test("options that cannot be used are sentences, and exit code 2", async () => {
  const { code, stdout, stderr } = await doctor("--server", "ws://x", "--seconds", "99");
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /^culvert doctor: --seconds needs|^culvert doctor: --seconds takes at most 8/m);
  assert.match(stderr, /^See: culvert doctor --help$/m);
});

test("--json is JSON also where a file is missing, with exit code 2", async (t) => {
  const given = await flags(t);
  for (const option of ["--proxy-credentials-file", "--ca-cert", "--config"]) {
    const { code, stdout, stderr } = await doctor(...given, option, "/no/such/file", "--json");
    assert.equal(code, 2);
    const { healthy, problems, servers, command } = JSON.parse(stdout);
    assert.deepEqual([healthy, servers], [false, []]);
    assert.ok(problems.includes(`${option}: /no/such/file does not exist.`), stdout);
    assert.match(command, /^culvert doctor /);
    assert.match(stderr, /\/no\/such\/file does not exist/);
  }
});
