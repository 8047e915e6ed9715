import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { controlPlaneModule, versionFlags } from "./control-plane-module.ts";
import { cachedFolder, go, goIsInstalled } from "./go-build.ts";

/** The newest Kubernetes that builds as ordinary modules; its go.mod and go.sum are in the tree. */
export const NEWEST = "1.36.3";
/** Two minors older. */
export const OLDER = "1.34.4";

/** Paths of the programs that e2e/kubernetes starts. */
export interface Assets {
  /** Of kube-apiserver, as it says itself. */
  readonly version: string;
  readonly kubeApiserver: string;
  readonly etcd: string;
  readonly kubectl: string;
  readonly nodeStandIn: string;
  readonly egressDialer: string;
}

/** This machine has neither the programs nor the means to build them; the message says what is missing. */
export class AssetsMissing extends Error {}

const CONTROL_PLANE = join(import.meta.dirname, "go", "controlplane");
const NODE = join(import.meta.dirname, "go", "node");
const CONTROL_PLANE_PROGRAMS = ["kube-apiserver", "etcd", "kubectl"];

/**
 * A control plane from the folder `KUBEBUILDER_ASSETS` (the convention of controller-runtime's envtest), or else built
 * with Go and cached by version; and our own Go programs, cached by their sources.
 */
export async function findOrBuildAssets(version = NEWEST): Promise<Assets> {
  const controlPlane = givenControlPlane() ?? (await builtControlPlane(version));
  const node = await builtNode();
  const kubeApiserver = join(controlPlane, "kube-apiserver");
  return {
    version: await versionOf(kubeApiserver),
    kubeApiserver,
    etcd: join(controlPlane, "etcd"),
    kubectl: join(controlPlane, "kubectl"),
    nodeStandIn: join(node, "node-stand-in"),
    egressDialer: join(node, "egress-dialer"),
  };
}

function givenControlPlane(): string | undefined {
  const folder = process.env["KUBEBUILDER_ASSETS"];
  if (!folder) return undefined;
  const absent = CONTROL_PLANE_PROGRAMS.filter((name) => !existsSync(join(folder, name)));
  if (absent.length > 0) throw new AssetsMissing(`KUBEBUILDER_ASSETS is ${folder}, which has no ${absent.join(", ")}`);
  return folder;
}

async function builtControlPlane(version: string): Promise<string> {
  return await cachedFolder(version, async (folder) => {
    await needGo("KUBEBUILDER_ASSETS is not set, and there is no Go to build kube-apiserver, etcd and kubectl");
    const done = progress(`building kube-apiserver, etcd and kubectl ${version}, once: minutes, on a few cores`);
    const module = version === NEWEST ? CONTROL_PLANE : await generatedModule(version, join(folder, "module"));
    await build(module, folder, "-ldflags", versionFlags(version));
    done();
  });
}

/** A module like the one in the tree, for another version; its go.mod and go.sum are completed by Go. */
async function generatedModule(version: string, folder: string): Promise<string> {
  mkdirSync(folder);
  const upstream = JSON.parse(await go(folder, "mod", "download", "-json", `k8s.io/kubernetes@v${version}`));
  writeFileSync(join(folder, "go.mod"), controlPlaneModule(version, readFileSync(upstream.GoMod, "utf8")));
  cpSync(join(CONTROL_PLANE, "cmd"), join(folder, "cmd"), { recursive: true });
  await go(folder, "mod", "tidy");
  return folder;
}

async function builtNode(): Promise<string> {
  return await cachedFolder(`node-${hashOfTree(NODE)}`, async (folder) => {
    await needGo("there is no Go to build the node stand-in and the egress dialer");
    const done = progress("building the node stand-in and the egress dialer");
    await build(NODE, folder, "-ldflags", "-s -w");
    done();
  });
}

async function build(module: string, into: string, ...flags: string[]): Promise<void> {
  await go(module, "build", "-trimpath", "-buildvcs=false", ...flags, "-o", `${into}/`, "./cmd/...");
}

async function needGo(otherwise: string): Promise<void> {
  if (!(await goIsInstalled())) throw new AssetsMissing(otherwise);
}

/** Says what takes its time, and then how long it took. */
function progress(what: string): () => void {
  const started = performance.now();
  console.error(what);
  return () => console.error(`built in ${Math.round((performance.now() - started) / 1000)} s`);
}

function hashOfTree(root: string): string {
  const hash = createHash("sha256");
  for (const name of readdirSync(root, { recursive: true, encoding: "utf8" }).sort()) {
    const path = join(root, name);
    if (statSync(path).isFile()) hash.update(`${name}\0`).update(readFileSync(path));
  }
  return hash.digest("hex").slice(0, 16);
}

/** "Kubernetes v1.36.3" → "1.36.3" */
async function versionOf(kubeApiserver: string): Promise<string> {
  const { stdout } = await promisify(execFile)(kubeApiserver, ["--version"]);
  return stdout.trim().replace(/^Kubernetes v/, "");
}
