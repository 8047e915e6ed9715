import type { Values } from "./helm.ts";
import { EVERYTHING_OF_BOTH } from "./values-of-both.ts";

/** Agents reach the server by this name. */
const hosts = { agents: { hosts: ["culvert.example.com"] } };
const keys = (secret: string) => ({ secret, certKey: "cert.pem", keyKey: "key.pem" });
const existing = {
  source: "existing",
  existing: {
    agents: { ...keys("agents-port"), ca: { secret: "agents-ca", key: "bundle.pem" } },
    callers: { ...keys("callers-port"), ca: { configMap: "callers-ca", key: "bundle.pem" } },
    client: { ...keys("caller"), ca: { secret: "agents-port", key: "issuer.pem" } },
  },
};
const monitored = {
  serviceMonitor: { enabled: true, labels: { release: "prometheus" }, interval: "15s" },
  prometheusRule: { enabled: true, alertLabels: { team: "platform" } },
  grafanaDashboard: { enabled: true },
};
const sidecar = { mode: "sidecar", sidecar: { podSelector: { app: "kube-apiserver" } } };
const replicated = { workload: "StatefulSet", replicas: 3 };

const clusterDocument = (name: string) => ({
  agents: { sni: [`${name}.example.com`], identities: [`CN=${name}-agent`] },
  callers: { sni: [`${name}.callers.example.com`], identities: [`CN=${name}`] },
});

/** Values of culvert-server that set two switches or more: what an installation may have together. */
export const ODD_SERVERS: Readonly<Record<string, Values>> = {
  "nothing set": {},
  "cert-manager makes a CA, and a TLSRoute leads agents": {
    ...hosts,
    tls: { source: "certManager" },
    gateway: { tlsRoute: { enabled: true, parentRefs: [{ name: "public", namespace: "gateways" }] } },
  },
  "an issuer that is there, a Route, and monitors": {
    ...hosts,
    ...monitored,
    tls: { source: "certManager", certManager: { issuerRef: { name: "private", kind: "ClusterIssuer" } } },
    route: { enabled: true },
  },
  "existing Secrets with keys of their own, and two replicas of a Deployment": { ...hosts, tls: existing, replicas: 2 },
  "a StatefulSet, a balancer with source ranges, and a policy for the network": {
    ...replicated,
    agents: {
      hosts: ["a.example.com", "b.example.com", "c.example.com"],
      service: {
        type: "LoadBalancer",
        annotations: { "service.beta.kubernetes.io/aws-load-balancer-type": "external" },
        loadBalancerClass: "service.k8s.aws/nlb",
        loadBalancerSourceRanges: ["203.0.113.0/24"],
        externalTrafficPolicy: "Local",
        ipFamilyPolicy: "PreferDualStack",
      },
    },
    ports: { http: 8101 },
    networkPolicy: { enabled: true, healthFrom: [{ namespaceSelector: {} }] },
  },
  "a StatefulSet on ports of the nodes, and monitors": {
    ...replicated,
    ...monitored,
    agents: {
      hosts: ["a.example.com", "b.example.com", "c.example.com"],
      service: { type: "NodePort", nodePorts: [30001, 30002, 30003] },
    },
  },
  "a Deployment whose five replicas are counted, with tokens and an update strategy of its own": {
    agents: { hosts: ["culvert.example.com"], token: { enabled: true, kubeconfig: { secret: "workload-kubeconfig" } } },
    replicas: 5,
    updateStrategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: 2, maxUnavailable: 0 } },
  },
  "a sidecar whose pods are counted": { ...sidecar, agents: { countServers: "endpoints" } },
  "two replicas that nobody counts": { replicas: 2, agents: { countServers: "off" }, options: { "server-count": 2 } },
  "a fleet in a StatefulSet, with existing Secrets, a certificate for NATS and a CA in a ConfigMap": {
    ...replicated,
    tls: {
      source: "existing",
      existing: { ...existing.existing, peers: { ...keys("peers"), ca: { secret: "peers", key: "issuer.pem" } } },
    },
    ports: { peers: 9096 },
    directory: {
      urls: ["nats://nats-1:4222", "tls://nats-2:4222"],
      credentials: { secret: "nats", key: "user.creds" },
      client: keys("nats-client"),
      ca: { configMap: "nats-ca", key: "bundle.pem" },
    },
    peers: { identities: ["O=servers,CN=blue", "O=servers,CN=red"] },
    networkPolicy: { enabled: true, peersFrom: [{ namespaceSelector: {} }] },
    extraEnv: [{ name: "A", value: "b" }],
  },
  "a fleet with certificates of the Job": { replicas: 6, directory: { urls: ["nats://nats:4222"] } },
  "a fleet whose pods wait for agents or the directory": {
    ...{ replicas: 6, directory: { urls: ["nats://nats:4222"] }, options: { "ready-needs-agent": true } },
    ...{ serviceMonitor: { enabled: true }, prometheusRule: { enabled: true } },
  },
  "a sidecar of a fleet": { ...sidecar, directory: { urls: ["nats://nats:4222"] } },
  "a router in front, for this server": { ...hosts, router: { enabled: true }, networkPolicy: { enabled: true } },
  "a router with options of its own, and existing Secrets": {
    ...hosts,
    tls: existing,
    router: {
      enabled: true,
      replicas: 3,
      options: { "log-level": "debug" },
      service: { type: "NodePort", nodePort: 30443 },
      routes: [{ sni: ["blue.example.com"], to: ["10.0.0.1:8091", "blue.clusters.svc:8091"], sendProxy: "v2" }],
    },
  },
  "an Ingress that passes TLS on": {
    ...hosts,
    ingress: {
      enabled: true,
      className: "nginx",
      annotations: { "nginx.ingress.kubernetes.io/ssl-passthrough": "true" },
    },
  },
  "an Ingress that ends TLS, and tokens": {
    ...hosts,
    ingress: {
      enabled: true,
      termination: "terminate",
      tlsSecret: "public-certificate",
      controllerCIDRs: ["10.0.0.0/8"],
    },
    agents: { hosts: ["culvert.example.com"], token: { enabled: true } },
  },
  "tokens that another cluster's API has issued": {
    ...hosts,
    agents: {
      hosts: ["culvert.example.com"],
      token: { enabled: true, namespace: "agents", kubeconfig: { secret: "workload-kubeconfig", key: "value" } },
    },
  },
  "clusters from values, and options": {
    ...hosts,
    clusters: {
      documents: {
        blue: clusterDocument("blue"),
        red: {
          ...clusterDocument("red"),
          limits: { streams: 2000 },
          suspended: true,
          allowedDestinations: ["kube-apiserver.red.svc:6443"],
        },
      },
    },
    options: { "connect-timeout": "9s", "drain-timeout": "2m", "log-level": "debug", "health-shows-clusters": true },
  },
  "clusters from ConfigMaps and Secrets": {
    ...hosts,
    clusters: { from: [{ configMap: "fleet" }, { secret: "blue-tls", folder: "blue", keys: ["tls.crt", "tls.key"] }] },
  },
  "a sidecar": { ...sidecar },
  "a sidecar with Konnectivity's ports, and cert-manager": {
    ...sidecar,
    ports: { preset: "konnectivity" },
    tls: { source: "certManager" },
  },
  "a sidecar with HyperShift's ports, and existing Secrets": {
    ...sidecar,
    ports: { preset: "hypershift" },
    tls: existing,
    preStopSeconds: 70,
  },
  "a sidecar with socket and port, and a balancer": {
    ...sidecar,
    callers: { transport: "both" },
    agents: { hosts: ["culvert.example.com"], service: { type: "LoadBalancer" } },
  },
  "HyperShift's ports in a Deployment, a long drain and a longer grace": {
    ports: { preset: "hypershift" },
    options: { "drain-timeout": "5m" },
    preStopSeconds: 70,
    terminationGracePeriodSeconds: 600,
  },
  "Konnectivity's ports in a Deployment, and a policy for the network": {
    ports: { preset: "konnectivity" },
    networkPolicy: { enabled: true },
  },
  "ports of its own, and no admin": { ports: { callers: 9443, agents: 10443, health: 9090, admin: 0 } },
  "everything that pods take from values": {
    ...EVERYTHING_OF_BOTH,
    affinity: { nodeAffinity: {} },
    serviceAccount: { create: true, name: "account", annotations: { "eks.amazonaws.com/role-arn": "arn" } },
  },
  "a release with a long name": {
    ...hosts,
    nameOverride: "a-name-of-the-chart-that-is-as-long-as-somebody-may-want-it-to-be",
  },
  "no service account, no budget, no test": {
    replicas: 2,
    serviceAccount: { create: false },
    podDisruptionBudget: { enabled: true, maxUnavailable: "50%" },
    tests: { enabled: false },
    egress: { create: false },
  },
  "addresses in place of names, and cert-manager": {
    agents: { hosts: ["192.0.2.1", "2001:db8::1"] },
    tls: { source: "certManager" },
  },
  "texts that look like something else, large numbers, and a duration in parts": {
    image: { tag: "1.10" },
    commonLabels: { on: "off" },
    podAnnotations: { number: "1", yes: "true" },
    podLabels: { number: "1", yes: "true" },
    nodeSelector: { dedicated: "true" },
    options: { "max-streams": 1_000_000, "drain-timeout": "1h0.5m1500ms", "established-gap": "0" },
    clusters: {
      documents: { 123: { ...clusterDocument("123"), agents: { identities: ["CN=123"], maxAgents: 2_000_000 } } },
    },
  },
};
