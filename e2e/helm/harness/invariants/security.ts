import type { Render } from "../helm.ts";
import { type Container, containersOf, type Fields, nameOf, type Pod } from "../objects.ts";
import { isSidecar } from "../sidecar.ts";

/** Pod Security "restricted", and what goes beyond it: a read-only root, one user, no token and no links without need. */
export function podsAreRestricted({ pods }: Render): string[] {
  return pods.flatMap((pod) => [
    ...podComplaints(pod).map((complaint) => `${nameOf(pod.owner)}: ${complaint}`),
    ...containersOf(pod).flatMap((container) =>
      containerComplaints(pod, container).map((complaint) => `${nameOf(pod.owner)}, ${container.name}: ${complaint}`),
    ),
  ]);
}

/** The pod that a sidecar is for is somebody else's. */
function podComplaints(pod: Pod): string[] {
  const { spec } = pod;
  const hostPaths = (spec.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined);
  return unmet({
    "fsGroup is not 65532": isSidecar(pod) || spec.securityContext?.["fsGroup"] === 65_532,
    "enableServiceLinks is not false": isSidecar(pod) || spec.enableServiceLinks === false,
    "automountServiceAccountToken is not said":
      isSidecar(pod) || typeof spec.automountServiceAccountToken === "boolean",
    "hostNetwork is set": !spec.hostNetwork,
    "a volume is a hostPath": hostPaths.length === 0,
  });
}

function containerComplaints({ spec }: Pod, { securityContext, image, resources }: Container): string[] {
  const security: Fields = { ...spec.securityContext, ...securityContext };
  const capabilities = (security["capabilities"] ?? {}) as { drop?: string[]; add?: string[] };
  return unmet({
    "runAsNonRoot is not true": security["runAsNonRoot"] === true,
    "runAsUser is not 65532": security["runAsUser"] === 65_532,
    "runAsGroup is not 65532": security["runAsGroup"] === 65_532,
    "seccompProfile is not RuntimeDefault": (security["seccompProfile"] as Fields)?.["type"] === "RuntimeDefault",
    "allowPrivilegeEscalation is not false": security["allowPrivilegeEscalation"] === false,
    "readOnlyRootFilesystem is not true": security["readOnlyRootFilesystem"] === true,
    "capabilities do not drop ALL": capabilities.drop?.includes("ALL") === true && capabilities.add === undefined,
    "the image has neither tag nor digest": /[:@][^/]+$/.test(image) && !image.endsWith(":latest"),
    "there is no limit of memory": resources?.limits?.["memory"] !== undefined,
    "no memory is requested": resources?.requests?.["memory"] !== undefined,
  });
}

function unmet(conditions: Readonly<Record<string, boolean>>): string[] {
  return Object.entries(conditions).flatMap(([complaint, holds]) => (holds ? [] : [complaint]));
}
