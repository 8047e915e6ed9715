import { isDeepStrictEqual } from "node:util";
import type { Render } from "../helm.ts";
import {
  chooses,
  type KubeObject,
  type Labels,
  labelSetsOf,
  nameOf,
  type Pod,
  type Selector,
  specOf,
} from "../objects.ts";
import { isSidecar } from "../sidecar.ts";

const INSTANCE = "app.kubernetes.io/instance";
const MONITORS = { ServiceMonitor: "Service", PodMonitor: "Pod" } as const;

/** Whatever chooses by labels chooses something of this release, and nothing of another. */
export function selectorsMatch({ objects, pods }: Render): string[] {
  return [
    ...pods.flatMap((pod) => [...ownSelector(pod), ...spreadSelectors(pod)]),
    ...objects.flatMap((object) => [...ofPods(object, pods), ...ofMonitor(object, objects, pods)]),
  ];
}

function ownSelector({ owner, labels }: Pod): string[] {
  if (!["Deployment", "DaemonSet", "StatefulSet"].includes(owner.kind)) return [];
  const wanted = specOf<{ selector: Selector }>(owner).selector.matchLabels;
  return complaints(owner, "its selector", wanted, [labels]);
}

function spreadSelectors({ owner, labels, spec }: Pod): string[] {
  return (spec.topologySpreadConstraints ?? []).flatMap(({ labelSelector }) =>
    complaints(owner, "topologySpreadConstraints", labelSelector?.matchLabels, [labels]),
  );
}

/** Services, budgets and policies of the network. */
function ofPods(object: KubeObject, pods: readonly Pod[]): string[] {
  const spec = specOf<{ selector?: Labels & Selector; podSelector?: Selector }>(object);
  switch (object.kind) {
    case "Service":
      return isOfSidecar(spec.selector, pods) ? [] : complaints(object, "its selector", spec.selector, labelSets(pods));
    case "PodDisruptionBudget":
      return complaints(object, "its selector", spec.selector?.matchLabels, labelSets(pods));
    case "NetworkPolicy":
      if (isOfSidecar(spec.podSelector?.matchLabels, pods)) return [];
      return complaints(object, "podSelector", spec.podSelector?.matchLabels, labelSets(pods));
    default:
      return [];
  }
}

/** Pods of somebody else have the labels that they have. */
function isOfSidecar(selector: Labels | undefined, pods: readonly Pod[]): boolean {
  return pods.filter(isSidecar).some(({ labels }) => isDeepStrictEqual(labels, selector));
}

function labelSets(pods: readonly Pod[]): Labels[] {
  return pods.filter((pod) => !isSidecar(pod)).flatMap(labelSetsOf);
}

function ofMonitor(object: KubeObject, objects: readonly KubeObject[], pods: readonly Pod[]): string[] {
  if (object.kind !== "ServiceMonitor" && object.kind !== "PodMonitor") return [];
  const kind = MONITORS[object.kind];
  const candidates =
    kind === "Pod"
      ? labelSets(pods)
      : objects.filter((other) => other.kind === kind).map(({ metadata }) => metadata.labels ?? {});
  return complaints(object, "its selector", specOf<{ selector: Selector }>(object).selector.matchLabels, candidates);
}

function complaints(object: KubeObject, what: string, wanted: Labels | undefined, found: readonly Labels[]): string[] {
  if (wanted?.[INSTANCE] === undefined) return [`${nameOf(object)}: ${what} may choose another release's`];
  if (found.some((labels) => chooses(wanted, labels))) return [];
  return [`${nameOf(object)}: ${what} chooses nothing: ${JSON.stringify(wanted)}`];
}
