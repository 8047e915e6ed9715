import { parseAllDocuments } from "yaml";

/** The fields of every object of Kubernetes, and any other fields. */
export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Metadata;
  readonly [field: string]: unknown;
}

interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Labels;
  readonly annotations?: Labels;
}

export type Labels = Readonly<Record<string, string>>;

/** The fields of a pod that the tests read. */
export interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly volumes?: readonly Volume[];
  readonly securityContext?: Fields;
  readonly automountServiceAccountToken?: boolean;
  readonly enableServiceLinks?: boolean;
  readonly terminationGracePeriodSeconds?: number;
  readonly serviceAccountName?: string;
  readonly hostNetwork?: boolean;
  readonly topologySpreadConstraints?: readonly { readonly labelSelector?: Selector }[];
  readonly [field: string]: unknown;
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly EnvVar[];
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number }[];
  readonly volumeMounts?: readonly VolumeMount[];
  readonly securityContext?: Fields;
  readonly resources?: Readonly<Record<"limits" | "requests", Labels>>;
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly startupProbe?: Probe;
  readonly lifecycle?: { readonly preStop?: PreStop };
  readonly [field: string]: unknown;
}

export interface Probe {
  readonly httpGet?: { readonly path?: string; readonly port: number | string; readonly scheme?: string };
  readonly timeoutSeconds?: number;
}

interface PreStop {
  readonly exec?: { readonly command: readonly string[] };
  readonly sleep?: { readonly seconds: number };
}

export interface EnvVar {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: {
    readonly secretKeyRef?: KeyRef;
    readonly configMapKeyRef?: KeyRef;
    readonly fieldRef?: { readonly fieldPath: string };
    readonly resourceFieldRef?: { readonly resource: string; readonly divisor?: string };
  };
}

interface KeyRef {
  readonly name: string;
  readonly key: string;
  readonly optional?: boolean;
}

export interface VolumeMount {
  readonly name: string;
  readonly mountPath: string;
  readonly subPath?: string;
  readonly readOnly?: boolean;
}

/** Keys of a Secret or ConfigMap, as files. */
export interface KeysAsFiles {
  readonly items?: readonly { readonly key: string; readonly path: string }[];
  readonly optional?: boolean;
}

export interface Volume {
  readonly name: string;
  readonly secret?: KeysAsFiles & { readonly secretName: string; readonly defaultMode?: number };
  readonly configMap?: KeysAsFiles & { readonly name: string; readonly defaultMode?: number };
  readonly projected?: { readonly sources: readonly ProjectedSource[]; readonly defaultMode?: number };
  readonly emptyDir?: Fields;
  readonly hostPath?: { readonly path: string };
}

export interface ProjectedSource {
  readonly secret?: KeysAsFiles & { readonly name: string };
  readonly configMap?: KeysAsFiles & { readonly name: string };
  readonly serviceAccountToken?: { readonly path: string; readonly audience?: string };
  readonly downwardAPI?: { readonly items: readonly { readonly path: string }[] };
}

export interface Selector {
  readonly matchLabels?: Labels;
}

export type Fields = Readonly<Record<string, unknown>>;

/** A pod that one of the objects makes. */
export interface Pod {
  readonly owner: KubeObject;
  readonly labels: Labels;
  readonly annotations: Labels;
  readonly spec: PodSpec;
}

/** The objects of rendered YAML; throws where it is no YAML, a key comes twice, or a document is no object. */
export function parseObjects(yaml: string): KubeObject[] {
  const documents = parseAllDocuments(yaml, { uniqueKeys: true });
  if (!Array.isArray(documents)) return [];
  return documents.flatMap((document) => {
    for (const problem of [...document.errors, ...document.warnings]) throw problem;
    const object = document.toJS();
    return object === null ? [] : [asObject(object)];
  });
}

function asObject(value: Partial<KubeObject>): KubeObject {
  const { apiVersion, kind, metadata } = value;
  if (typeof apiVersion === "string" && typeof kind === "string" && typeof metadata?.name === "string") {
    return value as KubeObject;
  }
  throw new Error(`this is no object of Kubernetes: ${JSON.stringify(value).slice(0, 500)}`);
}

/** "Deployment culvert-server", as messages name an object. */
export function nameOf({ kind, metadata }: KubeObject): string {
  return `${kind} ${metadata.name}`;
}

export function specOf<T = Fields>(object: KubeObject): T {
  return (object["spec"] ?? {}) as T;
}

/** The pods of workloads, and those that stand for themselves, such as a `helm test`. */
export function podsOf(objects: readonly KubeObject[]): Pod[] {
  return objects.flatMap((owner) => {
    if (owner.kind === "Pod") return [pod(owner, owner as unknown as PodTemplate)];
    const template = templateOf(owner);
    return template === undefined ? [] : [pod(owner, template)];
  });
}

/** Labels as a selector finds them: the pods of a StatefulSet have names of their own. */
export function labelSetsOf({ owner, labels }: Pod): Labels[] {
  if (owner.kind !== "StatefulSet") return [labels];
  const { replicas = 1 } = specOf<{ replicas?: number }>(owner);
  return Array.from({ length: replicas }, (_, index) => ({
    ...labels,
    "statefulset.kubernetes.io/pod-name": `${owner.metadata.name}-${index}`,
  }));
}

interface PodTemplate {
  readonly metadata?: Partial<Metadata>;
  readonly spec: PodSpec;
}

function templateOf(owner: KubeObject): PodTemplate | undefined {
  if (owner.kind === "CronJob") {
    return specOf<{ jobTemplate: { spec: { template: PodTemplate } } }>(owner).jobTemplate.spec.template;
  }
  return ["Deployment", "DaemonSet", "StatefulSet", "Job"].includes(owner.kind)
    ? specOf<{ template: PodTemplate }>(owner).template
    : undefined;
}

function pod(owner: KubeObject, { metadata = {}, spec }: PodTemplate): Pod {
  return { owner, labels: metadata.labels ?? {}, annotations: metadata.annotations ?? {}, spec };
}

export function containersOf({ spec }: Pod): Container[] {
  return [...(spec.initContainers ?? []), ...spec.containers];
}

/** Does a selector with these labels choose something with those? A selector without labels chooses everything. */
export function chooses(selector: Labels | undefined, labels: Labels): boolean {
  return Object.entries(selector ?? {}).every(([name, value]) => labels[name] === value);
}

/** Text of a Secret or ConfigMap by its keys, as a pod would see it. */
export function dataOf(object: KubeObject): Labels {
  const plain = { ...(object["data"] as Labels | undefined) };
  if (object.kind !== "Secret") return plain;
  const decoded = Object.entries(plain).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]);
  return { ...Object.fromEntries(decoded), ...(object["stringData"] as Labels | undefined) };
}
