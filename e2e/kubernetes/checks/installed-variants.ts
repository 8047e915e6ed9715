import { readFileSync } from "node:fs";
import { Authority, type LeafOptions } from "../../../shared/pki/certificates.ts";
import { installationCalled } from "../../helm/harness/installations.ts";
import type { Fields } from "../../helm/harness/objects.ts";
import { commandsOfStep } from "../../helm/harness/page-commands.ts";
import { PORTS } from "../world/addresses.ts";
import type { Balancer } from "../world/network.ts";
import type { WorldPki } from "../world/pki.ts";

/** How both charts are installed, and what the platform has around them. */
export interface Variant {
  /** Of culvert-server; its objects have this name, too. */
  readonly release: string;
  readonly namespace: string;
  /** A line for a shell that installs it; the values are what it reads. */
  readonly install: string;
  readonly values?: object;
  /** The object that has the server's pod. */
  readonly server: string;
  /** Does the Job of a hook make certificates? */
  readonly hasJob: boolean;
  readonly agentsNamespace: string;
  /** Lines that install culvert-agent. Left out: those of the server's notes. */
  readonly installAgents?: string;
  /** The name of the workload cluster in these lines. */
  readonly context: string;
  /** By which agents reach the server, and where it leads. */
  readonly agentsHost?: string;
  readonly balancer?: Balancer;
  /** Folders of kube-apiserver's container, and the object whose keys are the files in it. */
  readonly callerFiles: Readonly<Record<string, string>>;
  /** How many pods `helm test` has. */
  readonly tests: number;
  /** As of `Place`, in the control plane. */
  readonly podSecurity?: Fields;
  /** Objects that the platform has made before. */
  readonly objects: (pki: WorldPki) => Promise<object[]>;
}

const HOST = "culvert.example.com";
const PLAIN = { agents: { hosts: [HOST] }, options: { "drain-timeout": "1s" } };

/** The least of values, by the commands of the notes. */
export const WITH_CERTIFICATES = byNotes(PLAIN, "culvert");
export const WITH_TOKENS = byNotes(
  { ...PLAIN, agents: { ...PLAIN.agents, token: { enabled: true, namespace: "kube-system" } } },
  "kube-system",
);

function byNotes(values: object, agentsNamespace: string): Variant {
  const [release, namespace] = ["culvert-server", "culvert-system"];
  return {
    ...{ release, namespace, values, agentsNamespace },
    install: `helm install ${release} helm/culvert-server --namespace ${namespace} --values -`,
    server: `deployment/${release}`,
    hasJob: true,
    context: "WORKLOAD",
    agentsHost: HOST,
    callerFiles: { "/etc/kubernetes/culvert": `secret/${release}-caller` },
    tests: 2,
    objects: async () => [],
  };
}

const KKP_VALUES = installationCalled("kkp").values as { readonly agents: KkpAgents };
interface KkpAgents {
  readonly hosts: readonly string[];
  readonly externalPort: number;
}

/** helm/examples/kkp.yaml and kkp-agent.yaml, by the commands of docs/platforms/kkp.md. */
export const KKP: Variant = {
  release: "culvert",
  namespace: "cluster-abcdefghij",
  install: commandsOfStep("kkp.md", 1),
  server: "configmap/culvert-sidecar",
  hasJob: true,
  agentsNamespace: "kube-system",
  installAgents: commandsOfStep("kkp.md", 2),
  context: "blue",
  ...(KKP_VALUES.agents.hosts[0] && { agentsHost: KKP_VALUES.agents.hosts[0] }),
  // KKP's nodeport-proxy.
  balancer: { address: "203.0.113.20", port: KKP_VALUES.agents.externalPort },
  callerFiles: {},
  tests: 1, // its server has no port for callers
  objects: async ({ konnectivity }) => [
    secret("cluster-abcdefghij", "konnectivity-kubeconfig", { kubeconfig: kubeconfig(konnectivity) }),
    { apiVersion: "v1", kind: "ServiceAccount", metadata: named("kube-system", "system-konnectivity-agent") },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "system:konnectivity-server" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:auth-delegator" },
      subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "system:konnectivity-server" }],
    },
  ],
};

const [ADDRESS = "", PORT = ""] = serverAddress(installationCalled("hypershift-agent").values).split(":");

/** helm/examples/hypershift.yaml and hypershift-agent.yaml, by the commands of docs/platforms/hypershift.md. */
export const HYPERSHIFT: Variant = {
  release: "culvert",
  namespace: "clusters-blue",
  install: commandsOfStep("hypershift.md", 1),
  server: "deployment/culvert",
  hasJob: false,
  agentsNamespace: "kube-system",
  installAgents: commandsOfStep("hypershift.md", 2),
  context: "blue",
  balancer: { address: ADDRESS, port: Number(PORT) },
  callerFiles: {
    "/etc/kubernetes/certs/konnectivity-ca": "configmap/konnectivity-ca-bundle",
    "/etc/kubernetes/certs/konnectivity-client": "secret/konnectivity-client",
  },
  tests: 2,
  // OpenShift's SCC restricted-v2: a user of the namespace's range, in the group root.
  podSecurity: { runAsUser: 1_000_680_000, runAsGroup: 0, fsGroup: 1_000_680_000 },
  objects: async () => {
    const authority = await Authority.create("konnectivity-signer", 1);
    const pair = async (namespace: string, name: string, leaf: LeafOptions) => {
      const { cert, key } = await authority.issue(leaf);
      return secret(namespace, name, { "tls.crt": cert, "tls.key": key });
    };
    const bundle = (namespace: string) => ({
      ...{ apiVersion: "v1", kind: "ConfigMap", metadata: named(namespace, "konnectivity-ca-bundle") },
      data: { "ca.crt": authority.cert },
    });
    const server = (cn: string): LeafOptions => ({ cn, names: [cn], usage: "server" });
    const client = (cn: string): LeafOptions => ({ cn, o: ["kubernetes"], usage: "client" });
    return [
      ...["clusters-blue", "kube-system"].map(bundle),
      await pair("clusters-blue", "konnectivity-server", server("konnectivity-server-local")),
      await pair("clusters-blue", "konnectivity-cluster", server("konnectivity-server")),
      await pair("clusters-blue", "konnectivity-client", client("konnectivity-client")),
      await pair("kube-system", "konnectivity-agent", client("konnectivity-agent")),
    ];
  },
};

function serverAddress({ options }: Fields): string {
  return (options as { readonly "server-address": string })["server-address"];
}

function named(namespace: string, name: string): object {
  return { namespace, name };
}

function secret(namespace: string, name: string, stringData: Readonly<Record<string, string>>): object {
  return { apiVersion: "v1", kind: "Secret", metadata: named(namespace, name), stringData };
}

function kubeconfig({ ca, cert, key }: WorldPki["konnectivity"]): string {
  const data = (file: string) => readFileSync(file).toString("base64");
  const cluster = { server: `https://127.0.0.1:${PORTS.kubeApiserver}`, "certificate-authority-data": data(ca) };
  const user = { "client-certificate-data": data(cert), "client-key-data": data(key) };
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "blue", cluster }],
    users: [{ name: "server", user }],
    contexts: [{ name: "blue", context: { cluster: "blue", user: "server" } }],
    "current-context": "blue",
  });
}
