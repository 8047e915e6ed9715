import { parse } from "yaml";
import { type Container, dataOf, type KubeObject, type Labels, type Pod, type PodSpec } from "./objects.ts";

/**
 * The part of a kube-apiserver's pod that the ConfigMap of mode sidecar has to paste: the server's container, and the
 * volumes. `labels` are those of the pod.
 */
export function sidecarPods(objects: readonly KubeObject[], labels: Labels): Pod[] {
  return objects.flatMap((owner) => {
    const data = owner.kind === "ConfigMap" ? dataOf(owner) : {};
    const { "container.yaml": container, "volumes.yaml": volumes, "pod.yaml": pod } = data;
    if (container === undefined || volumes === undefined || pod === undefined) return [];
    const containers: readonly Container[] = parse(container);
    const spec: PodSpec = { ...parse(pod), containers, volumes: parse(volumes) };
    return [{ owner, labels, annotations: {}, spec }];
  });
}

/** Is it somebody else's pod, of which the chart has a part only? */
export function isSidecar({ owner }: Pod): boolean {
  return owner.kind === "ConfigMap";
}
