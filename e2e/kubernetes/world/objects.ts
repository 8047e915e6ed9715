import { readFileSync } from "node:fs";
import { NODE, NOWHERE, PORTS, SERVICES } from "./addresses.ts";

/** The node that a kubelet would register: its addresses, the port of its API, and its features. */
function node(name: string, address: Address, { port = PORTS.kubelet, features = [] }: Kubelet = {}): object {
  const status = {
    addresses: [address],
    daemonEndpoints: { kubeletEndpoint: { Port: port } },
    declaredFeatures: features,
  };
  return { apiVersion: "v1", kind: "Node", metadata: { name }, status };
}

type Address = { readonly type: "InternalIP" | "Hostname"; readonly address: string };
type Kubelet = { readonly port?: number; readonly features?: readonly string[] };

const at = (address: string): Address => ({ type: "InternalIP", address });
const called = (address: string): Address => ({ type: "Hostname", address });

/** Kubelets take WebSockets since 1.36, and say so; a kube-apiserver before it does not know the field. */
const WEBSOCKETS: Kubelet = { features: ["ExtendWebSocketsToKubelet"] };

/** One node in many guises: each has a pod of the same name. */
const NODES = {
  "stand-in": node("stand-in", at(NODE.ipv4), WEBSOCKETS),
  "by-name": node("by-name", called(NODE.name), WEBSOCKETS),
  "by-ipv6": node("by-ipv6", at(NODE.ipv6), WEBSOCKETS),
  refusing: node("refusing", at(NODE.ipv4), { port: PORTS.refused }),
  unknown: node("unknown", called(NOWHERE.unknownName)),
  unroutable: node("unroutable", at(NOWHERE.unroutable)),
  "black-hole": node("black-hole", at(NOWHERE.blackHole)),
  "new-black-hole": node("new-black-hole", at(NOWHERE.blackHole), WEBSOCKETS),
  forbidden: node("forbidden", at(NOWHERE.forbidden)),
} as const;

export type NodeName = keyof typeof NODES;

/** Names of containers choose what the stand-in's log says. */
const CONTAINERS = ["main", "counter", "steady-300", "steady-3000", "quiet-30", "past-180000"];

function pod(name: string): object {
  const containers = CONTAINERS.map((container) => ({ name: container, image: "stand-in" }));
  return { ...inDefault("v1", "Pod", name), spec: { nodeName: name, containers } };
}

/** The status that the kubelet would report; API servers accept it at the status subresource only. */
export const RUNNING = { status: { phase: "Running", podIP: NODE.ipv4, podIPs: [{ ip: NODE.ipv4 }] } };

function service(name: string, clusterIP: string, ports: Readonly<Record<string, number>>): object[] {
  const named = Object.entries(ports).map(([port, number]) => ({ name: port, port: number, protocol: "TCP" }));
  // kube-apiserver's proxy goes to addresses of pods only.
  const targetRef = { kind: "Pod", namespace: "default", name: "stand-in" };
  return [
    { ...inDefault("v1", "Service", name), spec: { clusterIP, ports: named } },
    // Its proxy of services reads Endpoints, its newer parts read slices.
    { ...inDefault("v1", "Endpoints", name), subsets: [{ addresses: [{ ip: NODE.ipv4, targetRef }], ports: named }] },
    {
      ...inDefault("discovery.k8s.io/v1", "EndpointSlice", name, { "kubernetes.io/service-name": name }),
      addressType: "IPv4",
      endpoints: [{ addresses: [NODE.ipv4], conditions: { ready: true }, targetRef }],
      ports: named,
    },
  ];
}

/** ConfigMaps with this label and value are shown to the webhook of that name. */
const WEBHOOK_LABEL = "culvert.test/webhook";

function webhook(name: string, serviceName: string, timeoutSeconds: number, caBundle: string): object {
  const path = "/validate";
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name },
    webhooks: [
      {
        name: `${name}.culvert.test`,
        admissionReviewVersions: ["v1"],
        sideEffects: "None",
        failurePolicy: "Fail",
        timeoutSeconds,
        clientConfig: { service: { namespace: "default", name: serviceName, path, port: PORTS.webhook }, caBundle },
        objectSelector: { matchLabels: { [WEBHOOK_LABEL]: name } },
        rules: [{ apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["configmaps"] }],
      },
    ],
  };
}

/** A ConfigMap for the webhook of that name to judge. */
export function judgedBy(webhookName: string, labels: Readonly<Record<string, string>> = {}): object {
  return inDefault("v1", "ConfigMap", `for-${webhookName}`, { [WEBHOOK_LABEL]: webhookName, ...labels });
}

export const AGGREGATED_API = "v1.stand-in.culvert.test";

/** Everything that the checks ask for, in an order in which it can be made. */
export function worldObjects(nodeCa: string): object[] {
  const caBundle = readFileSync(nodeCa).toString("base64");
  return [
    ...Object.values(NODES),
    ...Object.keys(NODES).map(pod),
    ...service("web", SERVICES.web, { http: PORTS.http, https: PORTS.https }),
    ...service("webhook", SERVICES.webhook, { https: PORTS.webhook }),
    ...service("echoes", SERVICES.echoes, { https: PORTS.aggregated }),
    ...service("black-hole", SERVICES.blackHole, { https: PORTS.webhook }),
    webhook("stand-in", "webhook", 10, caBundle),
    webhook("black-hole", "black-hole", 10, caBundle),
    webhook("impatient", "black-hole", 2, caBundle),
    {
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: AGGREGATED_API },
      spec: {
        group: "stand-in.culvert.test",
        version: "v1",
        service: { namespace: "default", name: "echoes", port: PORTS.aggregated },
        caBundle,
        groupPriorityMinimum: 1000,
        versionPriority: 10,
      },
    },
  ];
}

/** A namespace in which Pod Security refuses what is not "restricted". */
export function restrictedNamespace(name: string): object {
  const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
  return { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
}

function inDefault(apiVersion: string, kind: string, name: string, labels?: Readonly<Record<string, string>>): object {
  return { apiVersion, kind, metadata: { name, namespace: "default", ...(labels === undefined ? {} : { labels }) } };
}
