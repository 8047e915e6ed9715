/** Where everything is. The namespaces have these addresses to themselves, so they are the same in every run. */
export const CONTROL_PLANE = { ipv4: "10.91.1.2", ipv6: "fd91:1::2" } as const;
export const NODE = { ipv4: "10.91.2.2", ipv6: "fd91:2::2", name: "by-name.nodes.culvert.test" } as const;

/** Where programs of the node find kube-apiserver, by an agent that listens there. */
export const AT_NODE = "100.64.30.10";

/** Targets that cannot be reached, each in its own way. */
export const NOWHERE = {
  /** Nobody answers for it: the namespace in between drops it. */
  blackHole: "10.91.3.3",
  /** The node's namespace has a route that says no. */
  unroutable: "10.91.4.4",
  /** A cloud's metadata service, which agents refuse by default. */
  forbidden: "169.254.169.254",
  unknownName: "nobody.nodes.culvert.test",
} as const;

/** Names of servers that charts have installed, for callers beside them; they lead to the server's pod. */
export const INSTALLED_SERVERS = [
  "culvert-server.culvert-system.svc",
  // HyperShift's name for what kube-apiserver dials, and the Service of the release.
  "konnectivity-server-local",
  "culvert.clusters-blue.svc",
] as const;

export const PORTS = {
  callers: 8090,
  agents: 8091,
  serverHealth: 8092,
  agentHealth: 8093,
  etcd: 2379,
  etcdPeers: 2380,
  kubeApiserver: 6443,
  otherKubeApiserver: 6444,
  // Of the node stand-in, by its defaults.
  kubelet: 10250,
  http: 8080,
  https: 8443,
  webhook: 9443,
  aggregated: 9444,
  banner: 9001,
  /** Where nobody listens. */
  refused: 9,
} as const;

/** The node has the first ones as addresses of its own, as kube-proxy's IPVS mode arranges it. */
export const SERVICES = {
  range: "10.96.0.0/16",
  web: "10.96.0.10",
  webhook: "10.96.0.11",
  echoes: "10.96.0.12",
  /** The node does not have this one. */
  blackHole: "10.96.0.13",
} as const;
