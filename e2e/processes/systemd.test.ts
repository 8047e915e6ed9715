import assert from "node:assert/strict";
import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { before, test } from "node:test";
import { parse } from "yaml";
import { createPki } from "../../cli/pki/pki.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { agentFiles, serverFiles } from "../harness/pki-files.ts";
import { MAIN, RUNTIME, requireBuilt } from "../harness/processes.ts";
import { TempDir } from "../harness/temp.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const EXAMPLES = join(ROOT, "examples/systemd");
const PROGRAM = "/usr/local/bin/culvert";
const ETC = "/etc/culvert";
/** On systemd's scale of 0 (nothing can be done) to 100; both units are at 16. */
const MAX_EXPOSURE = 20;
const MIN_OPEN_FILES = 65_536;

interface Example {
  readonly unit: string;
  readonly config: string;
  /** Of a template: an instance. */
  readonly instance?: string;
}

const UNITS: readonly Example[] = [
  { unit: "culvert-server.service", config: "server.yaml" },
  { unit: "culvert-server@.service", config: "servers.yaml", instance: "01" },
  { unit: "culvert-agent.service", config: "agent.yaml" },
];

/** With lines that go on in the next one joined. */
const unitOf = (unit: string) => readFileSync(join(EXAMPLES, unit), "utf8").replace(/\\\n\s*/g, "");
const setting = (unit: string, key: string) => new RegExp(`^${key}=(.*)$`, "m").exec(unit)?.[1] ?? assert.fail(key);

before(requireBuilt);

for (const { unit: name, config, instance = "" } of UNITS) {
  const skip = missingProgram("systemd-analyze");

  test(`systemd has no objection to ${name}, and finds it closed to all but its work`, {
    skip,
  }, () => {
    using dir = new TempDir();
    const path = dir.file(name.replace("@", `@${instance}`));
    writeFileSync(path, unitOf(name).replace(PROGRAM, process.execPath)); // it must exist
    const verified = spawnSync("systemd-analyze", ["verify", "--man=no", "--recursive-errors=no", path]);
    // Of an unknown key it only warns.
    const objections = String(verified.stderr)
      .split("\n")
      .filter((line) => line.includes(basename(path)));
    assert.deepEqual([verified.status, objections], [0, []], String(verified.stderr));
    const security = ["security", "--offline=true", "--no-pager", `--threshold=${MAX_EXPOSURE}`, path];
    const rated = spawnSync("systemd-analyze", security);
    assert.equal(rated.status, 0, String(rated.stdout));
  });

  test(`culvert takes the command line and the file of ${name}, and stops in the time it has`, async () => {
    using dir = new TempDir();
    await exampleFiles(dir, config);
    const unit = unitOf(name);
    const line = setting(unit, "ExecStart").replaceAll("%i", instance).replaceAll("%H", "host");
    const [program, ...args] = line.replaceAll(ETC, dir.path).split(" ");
    assert.equal(program, PROGRAM);
    const shown = culvert(...args, "--print-config");
    assert.deepEqual([shown.status, String(shown.stderr)], [0, ""]);
    const drainS = Number(/^drain-timeout: (\d+)s/m.exec(String(shown.stdout))?.[1]);
    assert.ok(Number.parseInt(setting(unit, "TimeoutStopSec"), 10) > drainS, `drain-timeout is ${drainS}s`);
    assert.ok(Number(setting(unit, "LimitNOFILE")) >= MIN_OPEN_FILES);
    assert.doesNotMatch(unit, /^MemoryDenyWriteExecute=/m, "V8 writes the code that it executes");
  });
}

test("an agent that leads its node to the control plane is there before the kubelet, and may add an address", async () => {
  using dir = new TempDir();
  await exampleFiles(dir, "node.yaml");
  const dropIn = readFileSync(join(EXAMPLES, "node.conf"), "utf8");
  assert.match(dropIn, /^Before=kubelet\.service$/m);
  assert.match(dropIn, /^AmbientCapabilities=CAP_NET_ADMIN$/m);
  const [, line = ""] = /^ExecStart=(\/.*)$/m.exec(dropIn) ?? [];
  const [program, ...args] = line.replaceAll(ETC, dir.path).split(" ");
  assert.equal(program, PROGRAM);
  const shown = culvert(...args, "--print-config");
  assert.deepEqual([shown.status, String(shown.stderr)], [0, ""]);
  assert.match(String(shown.stdout), /^interface: lo # file$/m);
});

test("culvert takes the arguments of the static pod", async () => {
  using dir = new TempDir();
  await createPki({ dir: dir.path });
  const pod = parse(readFileSync(join(ROOT, "examples/static-pod/culvert-agent.yaml"), "utf8"));
  const [{ args }] = pod.spec.containers as [{ args: string[] }];
  const own = args.map((arg) => arg.replace(`${ETC}/agent/server-ca.crt`, agentFiles(dir.path).caCert));
  const shown = culvert(...own.map((arg) => arg.replace(`${ETC}/agent`, dir.path)), "--print-config");
  assert.deepEqual([shown.status, String(shown.stderr)], [0, ""]);
});

test("culvert takes the arguments of the sidecars that are pasted into other charts", async () => {
  using dir = new TempDir();
  await createPki({ dir: dir.path });
  const files = { "ca.crt": "server-ca.crt", "tls.crt": "client.crt", "tls.key": "client.key" };
  const { containers } = parse(readFileSync(join(ROOT, "examples/sidecars/values.yaml"), "utf8"));
  for (const { args } of containers as { args: string[] }[]) {
    const own = args.map((arg) =>
      arg.replace(/\/etc\/culvert\/caller\/(.*)/, (_, name: keyof typeof files) => dir.file(files[name])),
    );
    const shown = culvert(...own, "--print-config");
    assert.deepEqual([shown.status, String(shown.stderr)], [0, ""]);
  }
});

test("the server's unix socket is in the folder that its unit keeps for it", () => {
  const socket = /^udsName: (.*)$/m.exec(readFileSync(join(EXAMPLES, "server.yaml"), "utf8"))?.[1] ?? "";
  assert.equal(dirname(socket), `/run/${setting(unitOf("culvert-server.service"), "RuntimeDirectory")}`);
});

/** The example's configuration in this folder, with real files where it names some. */
async function exampleFiles(dir: TempDir, file: string): Promise<void> {
  await createPki({ dir: dir.path });
  const text = readFileSync(join(EXAMPLES, file), "utf8");
  const clusters = dir.file("clusters");
  mkdirSync(clusters);
  const files: Readonly<Record<string, string>> = { ...serverFiles(dir.path), ...agentFiles(dir.path), clusters };
  const config = text.replace(/^(\w+): \/etc\/culvert\/.*$/gm, (_line, key: string) => {
    return `${key}: ${files[key] ?? assert.fail(`${file} names a file for ${key}`)}`;
  });
  writeFileSync(dir.file(file), config);
}

function culvert(...args: string[]): SpawnSyncReturns<Buffer> {
  return spawnSync(RUNTIME, [MAIN, ...args]);
}
