import { spawn } from "node:child_process";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { ROOT } from "../../../shared/runtime/testing/project.ts";
import { mapConcurrently } from "../../harness/concurrently.ts";
import { findHelm } from "./helm-program.ts";
import { type KubeObject, type Labels, type Pod, parseObjects, podsOf } from "./objects.ts";
import { sidecarPods } from "./sidecar.ts";

export const CHARTS = join(ROOT, "helm");

export const CHART_NAMES = ["culvert-server", "culvert-agent"] as const;
export type Chart = (typeof CHART_NAMES)[number];

/** A chart with values, as an installation would have it. */
export interface Installation {
  /** As the tests call it. */
  readonly name: string;
  readonly chart: Chart;
  readonly values: Values;
  readonly release?: string;
  readonly namespace?: string;
  /** Where the chart is, if not in this tree. */
  readonly folder?: string;
  readonly isUpgrade?: boolean;
  /** Settings of its pods that differ from the charts' defaults, because its platform requires it. */
  readonly exceptions?: readonly PodException[];
}

/**
 * `no ids`: OpenShift's SCC restricted-v2 gives pods user and group of the namespace's range, and refuses ids that a
 * pod names itself. `node network`: the pod is on the network of its node, in a namespace where Pod Security allows
 * that.
 */
export type PodException = "no ids" | "node network";

export type Values = Readonly<Record<string, unknown>>;

/** The objects that helm would send to the API server, hooks and tests included. */
export interface Render {
  readonly installation: Installation;
  readonly yaml: string;
  readonly objects: readonly KubeObject[];
  /** Of its workloads, hooks and tests, and the one that a sidecar is for. */
  readonly pods: readonly Pod[];
}

/** The oldest Kubernetes that the charts are for. */
const KUBERNETES = "1.28.0";

export const namespaceOf = ({ namespace = "culvert" }: Installation): string => namespace;
const releaseOf = ({ release, chart }: Installation): string => release ?? chart;

/** Throws what helm has to object. */
export async function render(installation: Installation): Promise<Render> {
  const { code, stdout, stderr } = await template(installation);
  if (code !== 0) throw new Error(`helm template of ${installation.name}: ${stderr}`);
  try {
    return asRender(installation, stdout);
  } catch (error) {
    throw new Error(`${installation.name}: ${(error as Error).message}\n${stdout}`);
  }
}

/** Throws where it is no YAML of objects. */
export function asRender(installation: Installation, yaml: string): Render {
  const objects = parseObjects(yaml);
  const { podSelector = {} } = (installation.values["sidecar"] ?? {}) as { podSelector?: Labels };
  return { installation, yaml, objects, pods: [...podsOf(objects), ...sidecarPods(objects, podSelector)] };
}

/** The renders of helm, and its messages about values that it refuses. */
export async function renderAll(installations: readonly Installation[]): Promise<Renders> {
  const renders: Render[] = [];
  const failures: string[] = [];
  const results = mapConcurrently(installations, (one) => render(one).catch((error: Error) => error));
  for (const result of await results) {
    if (result instanceof Error) failures.push(result.message);
    else renders.push(result);
  }
  return { renders, failures };
}

interface Renders {
  readonly renders: readonly Render[];
  readonly failures: readonly string[];
}

/** `helm template` with these values. */
export function template(installation: Installation): Promise<Said> {
  const { chart, folder = `${CHARTS}/${chart}`, values, isUpgrade = false } = installation;
  return helm(
    [
      "template",
      releaseOf(installation),
      folder,
      `--namespace=${namespaceOf(installation)}`,
      `--kube-version=${KUBERNETES}`,
      "--values=-",
      ...(isUpgrade ? ["--is-upgrade"] : []),
    ],
    JSON.stringify(values),
  );
}

interface Said {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs helm to its end, whatever its exit code. */
export async function helm(args: readonly string[], stdin = ""): Promise<Said> {
  const child = spawn(findHelm() ?? "helm", args, { stdio: ["pipe", "pipe", "pipe"] });
  child.stdin.on("error", () => {}); // helm need not read it
  child.stdin.end(stdin);
  const ended = new Promise<number | null>((resolve, reject) => child.on("error", reject).on("close", resolve));
  const [code, stdout, stderr] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
  return { code, stdout, stderr };
}
