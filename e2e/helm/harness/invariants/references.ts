import { namespaceOf, type Render, type Values } from "../helm.ts";
import {
  containersOf,
  dataOf,
  type KeysAsFiles,
  type KubeObject,
  nameOf,
  type Pod,
  podsOf,
  specOf,
} from "../objects.ts";

type Kind = "Secret" | "ConfigMap" | "ServiceAccount";

/** Kubernetes makes this ConfigMap in each namespace. */
const ROOT_CA = "kube-root-ca.crt";

interface Reference {
  readonly kind: Kind;
  readonly name: string;
  readonly keys: readonly string[];
  readonly optional: boolean;
}

/** Objects that a pod mounts or reads are rendered, made by rendered objects, or named in the values. */
export function referencesExist({ objects, pods, installation }: Render): string[] {
  const made = new Set(objects.flatMap(secretsMadeBy));
  const named = stringsIn(installation.values);
  return pods.flatMap((pod) =>
    referencesOf(pod).flatMap(({ kind, name, keys, optional }) => {
      const rendered = objects.find((object) => object.kind === kind && object.metadata.name === name);
      if (rendered !== undefined) return kind === "ServiceAccount" ? [] : absentKeys(pod, rendered, keys);
      if (optional || name === ROOT_CA || named.has(name) || (kind === "Secret" && made.has(name))) return [];
      return [`${nameOf(pod.owner)} needs ${kind} ${name}, which nobody makes and no value names`];
    }),
  );
}

/** Each object that a cluster looks up is in the release's namespace, or says where it is. */
export function namespacesFit({ pods, installation }: Render): string[] {
  return pods
    .filter(({ owner }) => (owner.metadata.namespace ?? namespaceOf(installation)) !== namespaceOf(installation))
    .map(({ owner }) => `${nameOf(owner)} is in namespace ${owner.metadata.namespace}`);
}

function absentKeys({ owner }: Pod, object: KubeObject, keys: readonly string[]): string[] {
  const data = dataOf(object);
  return keys.filter((key) => !(key in data)).map((key) => `${nameOf(owner)} reads ${key} of ${nameOf(object)}`);
}

/** Names of the Secrets that come with an object: cert-manager's, and those of our Job. */
export function secretsMadeBy(object: KubeObject): string[] {
  if (object.kind === "Certificate") return [specOf<{ secretName: string }>(object).secretName];
  return object.kind === "Job" ? secretsOfPki(object) : [];
}

/** `culvert pki kubernetes --name NAME` makes these. */
function secretsOfPki(job: KubeObject): string[] {
  return podsOf([job])
    .flatMap(containersOf)
    .flatMap(({ command = [], args = [] }) => {
      const words = [...command, ...args].flatMap((word) => word.split("="));
      const name = words[words.indexOf("--name") + 1];
      if (!words.includes("pki") || name === undefined) return [];
      const roles = ["ca", "server", "caller", "agent", ...(words.includes("--peers") ? ["peer"] : [])];
      return roles.map((role) => `${name}-${role}`);
    });
}

function referencesOf(pod: Pod): Reference[] {
  const { serviceAccountName } = pod.spec;
  const account = serviceAccountName === undefined || serviceAccountName === "default" ? [] : [serviceAccountName];
  return [...volumeReferences(pod), ...envReferences(pod), ...account.map((name) => ref("ServiceAccount", name, {}))];
}

function volumeReferences({ spec }: Pod): Reference[] {
  return (spec.volumes ?? []).flatMap(({ secret, configMap, projected }) => [
    ...(secret ? [ref("Secret", secret.secretName, secret)] : []),
    ...(configMap ? [ref("ConfigMap", configMap.name, configMap)] : []),
    ...(projected?.sources ?? []).flatMap((source) => [
      ...(source.secret ? [ref("Secret", source.secret.name, source.secret)] : []),
      ...(source.configMap ? [ref("ConfigMap", source.configMap.name, source.configMap)] : []),
    ]),
  ]);
}

function envReferences(pod: Pod): Reference[] {
  return containersOf(pod)
    .flatMap(({ env = [] }) => env)
    .flatMap(({ valueFrom = {} }) => {
      const { secretKeyRef, configMapKeyRef } = valueFrom;
      return [
        ...(secretKeyRef ? [{ ...ref("Secret", secretKeyRef.name, secretKeyRef), keys: [secretKeyRef.key] }] : []),
        ...(configMapKeyRef
          ? [{ ...ref("ConfigMap", configMapKeyRef.name, configMapKeyRef), keys: [configMapKeyRef.key] }]
          : []),
      ];
    });
}

function ref(kind: Kind, name: string, { items = [], optional = false }: KeysAsFiles): Reference {
  return { kind, name, keys: items.map(({ key }) => key), optional };
}

/** Every text in the values, however deep. */
function stringsIn(value: unknown): Set<string> {
  if (typeof value === "string") return new Set([value]);
  if (typeof value !== "object" || value === null) return new Set();
  return new Set(Object.values(value as Values).flatMap((inner) => [...stringsIn(inner)]));
}
