import type { Render } from "../helm.ts";
import { dataOf, type KubeObject, nameOf, type Pod, specOf } from "../objects.ts";
import { isSidecar } from "../sidecar.ts";

const annotation = ({ metadata }: KubeObject, name: string) => metadata.annotations?.[name];

/** Objects that the pod of a kube-apiserver mounts outlive the release: without them, that pod could not restart. */
export function mountsOutliveTheRelease({ objects, pods }: Render): string[] {
  const mounted = pods.filter(isSidecar).flatMap(mountsOf);
  const needed = objects.filter(
    (object) =>
      (object.kind === "ConfigMap" && (mounted.includes(object.metadata.name) || isEgressFile(object))) ||
      (object.kind === "ServiceAccount" &&
        pods.some((pod) => isSidecar(pod) && accountOf(pod) === object.metadata.name)),
  );
  const lost = needed.filter((object) => annotation(object, "helm.sh/resource-policy") !== "keep");
  return lost.map((object) => `${nameOf(object)}: helm uninstall removes what kube-apiserver mounts`);
}

function mountsOf({ spec }: Pod): string[] {
  const sources = (spec.volumes ?? []).flatMap(({ configMap, projected }) => [
    configMap,
    ...(projected?.sources ?? []).map((source) => source.configMap),
  ]);
  return sources.flatMap((source) => source?.name ?? []);
}

function accountOf({ spec }: Pod): string | undefined {
  return spec.serviceAccountName;
}

function isEgressFile(object: KubeObject): boolean {
  return Object.values(dataOf(object)).some((text) => /^kind: EgressSelectorConfiguration$/m.test(text));
}

/** Another version of the chart is no reason to end connections. */
export function versionRollsNoPod({ pods }: Render): string[] {
  const rolled = pods.filter(
    ({ owner, labels }) => ["Deployment", "StatefulSet", "DaemonSet"].includes(owner.kind) && labels["helm.sh/chart"],
  );
  return rolled.map(({ owner }) => `${nameOf(owner)}: the chart's version is a label of its pods`);
}

/**
 * Callers come to a new pod when it is ready, and agents when the old one goes: nothing lies between. Where agents have
 * a tunnel to each pod, they come before.
 */
export function oldPodsGoAtOnce({ objects }: Render): string[] {
  if (objects.some((object) => /^server-count-service: /m.test(dataOf(object)["culvert.yaml"] ?? ""))) return [];
  const late = objects.filter(
    (object) => object.kind === "Deployment" && (specOf<{ minReadySeconds?: number }>(object).minReadySeconds ?? 0) > 0,
  );
  return late.map((object) => `${nameOf(object)}: its old pod keeps the agents while callers come to the new one`);
}

/** `helm test --logs` reads the log of each hook, as of a pod of that name, after the test. */
export function testsHaveLogs({ objects }: Render): string[] {
  const hooks = objects.filter((object) => annotation(object, "helm.sh/hook") === "test");
  const unread = hooks.filter(
    (object) =>
      object.kind !== "Pod" || annotation(object, "helm.sh/hook-delete-policy")?.includes("hook-succeeded") === true,
  );
  return unread.map((object) => `${nameOf(object)}: helm test --logs finds no log of it`);
}
