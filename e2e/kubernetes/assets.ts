import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { type KonnectivityPrograms, konnectivityPrograms } from "../harness/konnectivity-programs.ts";
import { controlPlaneModule, versionFlags } from "./control-plane-module.ts";
import { BUILD_DEADLINE_MS, cachedFolder, digestOf, go, goIsInstalled } from "./go-build.ts";
import { run } from "./world/run.ts";

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
  readonly konnectivity: KonnectivityPrograms;
}

/** This machine has neither the programs nor the means to build them; the message says what is missing. */
export class AssetsMissing extends Error {}

const CONTROL_PLANE = join(ROOT, "e2e/kubernetes/go/controlplane");
const NODE = join(ROOT, "e2e/kubernetes/go/node");
const MODULE_MAKER = join(import.meta.dirname, "control-plane-module.ts");
const CONTROL_PLANE_PROGRAMS = ["kube-apiserver", "etcd", "kubectl"];

/**
 * A control plane from the folder `KUBEBUILDER_ASSETS` (the convention of controller-runtime's envtest), or else built
 * with Go; and our own Go programs. Builds are cached by all their inputs; the signal ends a build.
 */
export async function findOrBuildAssets(version: string, signal: AbortSignal): Promise<Assets> {
  const controlPlane = givenControlPlane() ?? (await builtControlPlane(version, signal));
  const { nodeStandIn, egressDialer } = await nodePrograms(signal);
  const kubeApiserver = join(controlPlane, "kube-apiserver");
  return {
    version: await versionOf(kubeApiserver),
    kubeApiserver,
    etcd: join(controlPlane, "etcd"),
    kubectl: join(controlPlane, "kubectl"),
    nodeStandIn,
    egressDialer,
    konnectivity: await konnectivityPrograms(signal),
  };
}

function givenControlPlane(): string | undefined {
  const folder = process.env["KUBEBUILDER_ASSETS"];
  if (!folder) return undefined;
  const absent = CONTROL_PLANE_PROGRAMS.filter((name) => !existsSync(join(folder, name)));
  if (absent.length > 0) throw new AssetsMissing(`KUBEBUILDER_ASSETS is ${folder}, which has no ${absent.join(", ")}`);
  return folder;
}

async function builtControlPlane(version: string, signal: AbortSignal): Promise<string> {
  const flags = buildFlags(versionFlags(version));
  const maker = version === NEWEST ? [] : [readFileSync(MODULE_MAKER, "utf8")];
  const name = `${version}-${digestOf(CONTROL_PLANE, ...flags, ...maker)}`;
  return await cachedFolder(name, async (folder) => {
    await needGo("KUBEBUILDER_ASSETS is not set, and there is no Go to build kube-apiserver, etcd and kubectl");
    const done = progress(`building kube-apiserver, etcd and kubectl ${version}, once: minutes, on a few cores`);
    const module = version === NEWEST ? CONTROL_PLANE : await generatedModule(version, join(folder, "module"), signal);
    await build(module, folder, flags, signal);
    done();
  });
}

/** A module like the one in the tree, for another version; its go.mod and go.sum are completed by Go. */
async function generatedModule(version: string, folder: string, signal: AbortSignal): Promise<string> {
  mkdirSync(folder);
  const upstream = JSON.parse(await go(folder, ["mod", "download", "-json", `k8s.io/kubernetes@v${version}`], signal));
  writeFileSync(join(folder, "go.mod"), controlPlaneModule(version, readFileSync(upstream.GoMod, "utf8")));
  cpSync(join(CONTROL_PLANE, "cmd"), join(folder, "cmd"), { recursive: true });
  await go(folder, ["mod", "tidy"], signal);
  return folder;
}

/** Our own Go programs, built once for each state of their sources. */
export async function nodePrograms(
  signal: AbortSignal = AbortSignal.timeout(BUILD_DEADLINE_MS),
): Promise<Pick<Assets, "nodeStandIn" | "egressDialer">> {
  const flags = buildFlags("-s -w");
  const folder = await cachedFolder(`node-${digestOf(NODE, ...flags)}`, async (folder) => {
    await needGo("there is no Go to build the node stand-in and the egress dialer");
    const done = progress("building the node stand-in and the egress dialer");
    await build(NODE, folder, flags, signal);
    done();
  });
  return { nodeStandIn: join(folder, "node-stand-in"), egressDialer: join(folder, "egress-dialer") };
}

function buildFlags(linker: string): string[] {
  return ["-trimpath", "-buildvcs=false", "-ldflags", linker];
}

async function build(module: string, into: string, flags: readonly string[], signal: AbortSignal): Promise<void> {
  await go(module, ["build", ...flags, "-o", `${into}/`, "./cmd/..."], signal);
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

/** "Kubernetes v1.36.3" → "1.36.3" */
async function versionOf(kubeApiserver: string): Promise<string> {
  const { stdout } = await run([kubeApiserver, "--version"]);
  return stdout.trim().replace(/^Kubernetes v/, "");
}
