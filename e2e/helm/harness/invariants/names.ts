import type { Render } from "../helm.ts";
import { type KubeObject, nameOf } from "../objects.ts";

const MAX_LABEL = 63;
const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$/;

/** No two objects of one kind and name; names that Kubernetes takes; the labels that say whose they are. */
export function namesAreSound({ objects }: Render): string[] {
  return [...twice(objects), ...objects.flatMap(wrongName), ...objects.flatMap(wrongLabels)];
}

function twice(objects: readonly KubeObject[]): string[] {
  const keys = objects.map(({ apiVersion, kind, metadata }) =>
    [...apiVersion.split("/").slice(0, -1), kind, metadata.namespace ?? "", metadata.name].join(" "),
  );
  const repeated = keys.filter((key, index) => keys.indexOf(key) !== index);
  return repeated.map((key) => `${key} is rendered twice`);
}

function wrongName(object: KubeObject): string[] {
  const { name } = object.metadata;
  // RBAC's names may have colons.
  const plain = object.apiVersion.startsWith("rbac.") ? name.replaceAll(":", "-") : name;
  if (DNS_SUBDOMAIN.test(plain) && name.length <= MAX_LABEL) return [];
  return [`${nameOf(object)} is no name of at most ${MAX_LABEL} lower-case letters, digits and dashes`];
}

function wrongLabels(object: KubeObject): string[] {
  const labels = object.metadata.labels ?? {};
  const wanted = ["app.kubernetes.io/name", "app.kubernetes.io/instance", "helm.sh/chart"];
  const absent = wanted.filter((label) => !labels[label]);
  const wrong = Object.entries(labels).filter(
    ([, value]) => typeof value !== "string" || value.length > MAX_LABEL || !LABEL_VALUE.test(value),
  );
  return [
    ...absent.map((label) => `${nameOf(object)} has no label ${label}`),
    ...wrong.map(([label, value]) => `${nameOf(object)} has label ${label}: ${value}, which Kubernetes refuses`),
  ];
}
