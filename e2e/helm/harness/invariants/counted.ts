import { namespaceOf, type Render } from "../helm.ts";
import { dataOf, type KubeObject, nameOf, type Pod } from "../objects.ts";

/** A server that counts the endpoints of a Service finds that Service, and its account may read them. */
export function countedServicesExist({ objects, pods, installation }: Render): string[] {
  return objects.flatMap((config) => {
    const [, service] = /^server-count-service: (\S+)$/m.exec(dataOf(config)["culvert.yaml"] ?? "") ?? [];
    if (service === undefined) return [];
    const names = objects.filter(({ kind }) => kind === "Service").map(({ metadata }) => metadata.name);
    const complaints = [];
    const isThere = names.some((name) => service === `${namespaceOf(installation)}/${name}`);
    if (!isThere) complaints.push(`${nameOf(config)} counts the endpoints of ${service}, which is no Service here`);
    for (const pod of pods.filter((pod) => mounts(pod, config))) {
      const account = pod.spec.serviceAccountName ?? "default";
      if (pod.spec.automountServiceAccountToken !== true)
        complaints.push(`${nameOf(pod.owner)} has no token for the API`);
      if (!mayReadEndpoints(objects, account)) complaints.push(`account ${account} may not watch endpointslices`);
    }
    return complaints;
  });
}

function mounts({ spec }: Pod, { metadata }: KubeObject): boolean {
  return (spec.volumes ?? []).some(({ configMap }) => configMap?.name === metadata.name);
}

interface RoleRule {
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

function mayReadEndpoints(objects: readonly KubeObject[], account: string): boolean {
  return objects.some((binding) => {
    const { roleRef, subjects } = binding as { roleRef?: { name: string }; subjects?: readonly { name: string }[] };
    if (binding.kind !== "RoleBinding" || !subjects?.some(({ name }) => name === account)) return false;
    const role = objects.find(({ kind, metadata }) => kind === "Role" && metadata.name === roleRef?.name);
    const { rules = [] } = (role ?? {}) as { rules?: readonly RoleRule[] };
    return rules.some(({ resources, verbs }) => resources.includes("endpointslices") && verbs.includes("watch"));
  });
}
