import { parseDuration } from "../../../../shared/config/values.ts";
import type { Render } from "../helm.ts";
import { type Container, chooses, type KubeObject, type Labels, nameOf, type Selector, specOf } from "../objects.ts";
import type { Service } from "./commands.ts";

/** Time that the process needs beyond its drain to end by itself. */
const MARGIN_S = 10;

/** The kubelet waits for preStop and drain, and a bit longer. */
export function graceIsEnough({ pod, container, printed }: Service): string[] {
  const grace = pod.spec.terminationGracePeriodSeconds ?? 30;
  const drain = parseDuration(printed.values.get("drain-timeout") ?? "0") / 1000;
  const needed = preStopSeconds(container) + drain + MARGIN_S;
  return grace >= needed ? [] : [`${nameOf(pod.owner)}: terminationGracePeriodSeconds is ${grace}, not ${needed}`];
}

/** The process is told to end only after its address was withdrawn from Services. */
export function preStopWaits({ pod, container }: Service): string[] {
  const serves = (container.ports ?? []).some(({ name }) => name !== "health" && name !== "metrics");
  return !serves || preStopSeconds(container) > 0 ? [] : [`${nameOf(pod.owner)}: there is no preStop that waits`];
}

function preStopSeconds({ lifecycle }: Container): number {
  const { sleep, exec } = lifecycle?.preStop ?? {};
  if (sleep) return sleep.seconds;
  return Number(/sleep (\d+)/.exec(exec?.command.join(" ") ?? "")?.[1] ?? 0);
}

/** With two replicas or more, neither a rolling update nor an eviction takes away the last one. */
export function oneAlwaysRuns({ objects, pods }: Render): string[] {
  return pods.flatMap((pod) => {
    const { replicas = 1, strategy, updateStrategy } = specOf<Workload>(pod.owner);
    const complaints = [];
    if (pod.owner.kind === "Deployment" && pod.spec.hostNetwork === true) {
      if (strategy?.rollingUpdate?.maxSurge !== 0 || mayBeGone(strategy) !== 1) {
        complaints.push("a new pod needs the ports of the node that an old one has");
      }
    } else if (pod.owner.kind === "Deployment" && (strategy?.type === "Recreate" || mayBeGone(strategy) !== 0)) {
      complaints.push("a rolling update may take away pods before others are ready");
    }
    if (pod.owner.kind === "StatefulSet" && updateStrategy?.type === "OnDelete") {
      complaints.push("a new version is not rolled out");
    }
    if (["Deployment", "StatefulSet"].includes(pod.owner.kind) && replicas >= 2) {
      const budget = budgetOf(objects, pod.labels);
      if (budget === undefined) complaints.push("no PodDisruptionBudget chooses its pods");
      else {
        const evicted = mayBeEvicted(budget, replicas);
        if (evicted >= replicas) complaints.push("its PodDisruptionBudget lets all pods be evicted");
        if (evicted <= 0) complaints.push("its PodDisruptionBudget lets no pod be evicted, and no node be drained");
      }
    }
    return complaints.map((complaint) => `${nameOf(pod.owner)}: ${complaint}`);
  });
}

interface Workload {
  readonly replicas?: number;
  readonly strategy?: Strategy;
  readonly updateStrategy?: Strategy;
}

interface Strategy {
  readonly type?: string;
  readonly rollingUpdate?: { readonly maxSurge?: number | string; readonly maxUnavailable?: number | string };
}

interface Budget {
  readonly selector: Selector;
  readonly maxUnavailable?: number | string;
  readonly minAvailable?: number | string;
}

/** As Kubernetes has it where nothing is said. */
function mayBeGone(strategy: Strategy | undefined): number | string {
  return strategy?.rollingUpdate?.maxUnavailable ?? "25%";
}

function budgetOf(objects: readonly KubeObject[], labels: Labels): Budget | undefined {
  return objects
    .filter(({ kind }) => kind === "PodDisruptionBudget")
    .map((object) => specOf<Budget>(object))
    .find(({ selector }) => chooses(selector.matchLabels, labels));
}

function mayBeEvicted({ maxUnavailable, minAvailable }: Budget, replicas: number): number {
  if (minAvailable !== undefined) return replicas - share(minAvailable, replicas);
  return share(maxUnavailable ?? 0, replicas);
}

/** Percentages are rounded up. */
function share(value: number | string, of: number): number {
  return typeof value === "number" ? value : Math.ceil((Number.parseInt(value, 10) / 100) * of);
}
