import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { TempDir } from "../harness/temp.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

// The Kubernetes run has these scripts with the real kubectl and helm (e2e/kubernetes/checks/kind-example.ts).
const run = promisify(execFile);
const EXAMPLE = join(ROOT, "examples/kind");
const TOOLS = ["docker", "kind", "kubectl", "helm"];
const ADDRESS = "172.18.0.2";

/** A copy of the example, and a folder for the PATH that has these tools; each writes down how it was called. */
function rehearsal(dir: TempDir, tools: readonly string[]) {
  const here = dir.file("examples/kind");
  cpSync(EXAMPLE, here, { recursive: true, filter: (path) => !path.endsWith("/run") });
  const bin = dir.file("bin");
  mkdirSync(bin);
  for (const name of ["bash", "sh", "dirname", "grep", "sed", "mkdir", "rm", "cat", "sleep"]) {
    const path = ["/usr/bin", "/bin"].map((folder) => join(folder, name)).find(existsSync);
    symlinkSync(path ?? assert.fail(`no ${name}`), join(bin, name));
  }
  const log = dir.file("calls");
  for (const tool of tools) {
    const script = `#!/bin/sh
      echo "${tool} $*" >> ${log}
      case "$*" in
        *" jsonpath="*|*InternalIP*) echo ${ADDRESS};;
        *"get secret culvert-server-caller"*|*"get configmap"*) echo content;;
        *"get clusters"*) echo "$CLUSTERS";;
      esac`;
    writeFileSync(join(bin, tool), script, { mode: 0o755 });
  }
  const script = (name: string, clusters = "") =>
    run(join(here, name), [], { env: { PATH: bin, CLUSTERS: clusters }, timeout: 60_000 });
  const calls = () => (existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : []);
  return { here, script, calls };
}

/** The calls that begin like this, in the order in which they were made. */
function inOrder(calls: readonly string[], beginnings: readonly string[]): void {
  let at = -1;
  for (const beginning of beginnings) {
    at = calls.findIndex((call, i) => i > at && call.startsWith(beginning));
    assert.notEqual(at, -1, `${beginning}\n${calls.join("\n")}`);
  }
}

test("the scripts of the kind trial have no fault that shellcheck knows", {
  skip: missingProgram("shellcheck"),
}, async () => {
  const scripts = readdirSync(EXAMPLE).filter((name) => /^(up|try|down|cut)\.sh$/.test(name));
  assert.equal(scripts.length, 4);
  await run("shellcheck", ["-x", ...scripts], { cwd: EXAMPLE });
});

test("up.sh makes the cluster for the server first, and the files before the kube-apiserver that reads them", async () => {
  using dir = new TempDir();
  const { here, script, calls } = rehearsal(dir, TOOLS);
  await script("up.sh");
  inOrder(calls(), [
    "docker build --tag culvert:trial ",
    "kind create cluster --name culvert-control --wait 3m",
    "kind load docker-image culvert:trial --name culvert-control",
    "helm --kube-context kind-culvert-control upgrade --install culvert-server ",
    "kubectl --context kind-culvert-control -n blue get secret culvert-server-caller ",
    "kubectl --context kind-culvert-control -n blue get configmap culvert-server-egress ",
    "kind create cluster --name culvert-blue --wait 3m --config blue.yaml",
    "kind load docker-image culvert:trial --name culvert-blue",
    "helm --kube-context kind-culvert-blue upgrade --install culvert-agent ",
    "kubectl --context kind-culvert-blue wait --for=condition=Ready pod/hello",
  ]);
  const helm = calls().filter((call) => call.startsWith("helm"));
  assert.match(helm[0] ?? "", new RegExp(`--set egress.url=https://${ADDRESS}:30090$`));
  assert.match(helm[1] ?? "", new RegExp(`--set servers={wss://${ADDRESS}:30091}$`));
  const [controlPlane] = parse(readFileSync(join(here, "blue.yaml"), "utf8")).nodes;
  const { apiServer } = parse(controlPlane.kubeadmConfigPatches[0]);
  const [mount] = controlPlane.extraMounts;
  assert.equal(mount.containerPath, apiServer.extraVolumes[0].hostPath);
  const egress = apiServer.extraArgs["egress-selector-config-file"].replace(
    apiServer.extraVolumes[0].mountPath,
    join(here, mount.hostPath),
  );
  assert.equal(readFileSync(egress, "utf8"), "content\n");
});

test("up.sh can be run again, and keeps clusters that exist", async () => {
  using dir = new TempDir();
  const { script, calls } = rehearsal(dir, TOOLS);
  await script("up.sh", "culvert-blue\nculvert-control");
  assert.deepEqual(
    calls().filter((call) => call.startsWith("kind create")),
    [],
  );
});

test("without one of its tools the trial changes nothing and names it", async () => {
  using dir = new TempDir();
  const { script, calls } = rehearsal(dir, ["docker", "kubectl", "helm"]);
  await assert.rejects(script("up.sh"), /kind is not installed; README\.md/);
  assert.deepEqual(calls(), []);
});

test("down.sh removes both clusters, and the private key", async () => {
  using dir = new TempDir();
  const { here, script, calls } = rehearsal(dir, TOOLS);
  await script("up.sh");
  await script("down.sh");
  inOrder(calls(), ["kind delete cluster --name culvert-blue", "kind delete cluster --name culvert-control"]);
  assert.equal(existsSync(join(here, "run")), false);
});
