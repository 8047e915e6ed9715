import type { PodException, Render } from "../helm.ts";
import { type Container, containersOf, type Fields, nameOf, type Pod } from "../objects.ts";
import { isSidecar } from "../sidecar.ts";

type Exceptions = readonly PodException[];
const ID = 65_532;

/**
 * Pod Security "restricted", and what goes beyond it: a read-only root, one user, no token and no links without need.
 */
export function podsAreRestricted({ pods, installation: { exceptions = [] } }: Render): string[] {
  return [
    ...pods.flatMap((pod) => [
      ...podComplaints(pod, exceptions).map((complaint) => `${nameOf(pod.owner)}: ${complaint}`),
      ...containersOf(pod).flatMap((container) =>
        containerComplaints(pod, container, exceptions).map(
          (complaint) => `${nameOf(pod.owner)}, ${container.name}: ${complaint}`,
        ),
      ),
    ]),
    ...unmet({
      "no pod needs the exception for node network":
        !exceptions.includes("node network") || pods.some(({ spec }) => spec.hostNetwork === true),
    }),
  ];
}

/** The pod that a sidecar is for is somebody else's. */
function podComplaints(pod: Pod, exceptions: Exceptions): string[] {
  const { spec } = pod;
  const id = idOf(exceptions);
  const hostPaths = (spec.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined);
  return unmet({
    [isNot("fsGroup", id)]: isSidecar(pod) || spec.securityContext?.["fsGroup"] === id,
    "enableServiceLinks is not false": isSidecar(pod) || spec.enableServiceLinks === false,
    "automountServiceAccountToken is not said":
      isSidecar(pod) || typeof spec.automountServiceAccountToken === "boolean",
    "hostNetwork is set": exceptions.includes("node network") || !spec.hostNetwork,
    "a volume is a hostPath": hostPaths.length === 0,
  });
}

function containerComplaints(
  { spec }: Pod,
  { securityContext, image, resources }: Container,
  exceptions: Exceptions,
): string[] {
  const id = idOf(exceptions);
  const security: Fields = { ...spec.securityContext, ...securityContext };
  const capabilities = (security["capabilities"] ?? {}) as { drop?: string[]; add?: string[] };
  return unmet({
    "runAsNonRoot is not true": security["runAsNonRoot"] === true,
    [isNot("runAsUser", id)]: security["runAsUser"] === id,
    [isNot("runAsGroup", id)]: security["runAsGroup"] === id,
    "seccompProfile is not RuntimeDefault": (security["seccompProfile"] as Fields)?.["type"] === "RuntimeDefault",
    "allowPrivilegeEscalation is not false": security["allowPrivilegeEscalation"] === false,
    "readOnlyRootFilesystem is not true": security["readOnlyRootFilesystem"] === true,
    "capabilities do not drop ALL": capabilities.drop?.includes("ALL") === true && capabilities.add === undefined,
    "the image has neither tag nor digest": /[:@][^/]+$/.test(image) && !image.endsWith(":latest"),
    "there is no limit of memory": resources?.limits?.["memory"] !== undefined,
    "no memory is requested": resources?.requests?.["memory"] !== undefined,
  });
}

/** Undefined where the platform gives ids. */
function idOf(exceptions: Exceptions): number | undefined {
  return exceptions.includes("no ids") ? undefined : ID;
}

function isNot(field: string, id: number | undefined): string {
  return id === undefined ? `${field} is set` : `${field} is not ${id}`;
}

function unmet(conditions: Readonly<Record<string, boolean>>): string[] {
  return Object.entries(conditions).flatMap(([complaint, holds]) => (holds ? [] : [complaint]));
}
