import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { mapConcurrently } from "../harness/concurrently.ts";
import { type Chart, template, type Values } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";

const DURATION = "value must be 'a duration such as 500ms, 8s or 1h30m'";
const AGENT = { servers: ["wss://culvert.example.com:443"], auth: { certificate: { existingSecret: "agent" } } };
const hosts = ["culvert.example.com"];
const NETWORK = "value must be 'a network such as 203.0.113.0/24'";
const BUDGET = "value must be 'a number such as 1, or a percentage such as 50%'";
const DRAIN = (options: string) => `value must be 'absent here: set ${options}.drain-timeout instead, from which`;

const terminating = {
  agents: { hosts },
  options: { "inner-tls": "auto" },
  ingress: { enabled: true, termination: "terminate", controllerCIDRs: ["10.0.0.0/8"] },
};

/** A wrong value, and helm's message about it. */
const OF_SERVER: readonly (readonly [Values, string])[] = [
  [{ opitons: {} }, "at '': additional properties 'opitons' not allowed"],
  [{ mode: "side-car" }, "at '/mode': value must be one of 'standalone', 'sidecar'"],
  [{ mode: "sidecar" }, "sidecar.podSelector: set it to the labels of the kube-apiserver pods"],
  [{ workload: "DaemonSet" }, "at '/workload': value must be one of 'Deployment', 'StatefulSet'"],
  [{ replicas: "two" }, "at '/replicas': got string, want integer"],
  [
    { workload: "StatefulSet", replicas: 2, agents: { hosts } },
    "agents.hosts: a StatefulSet of 2 replicas needs 2 names",
  ],
  [{ options: { "ready-needs-agent": true } }, "options.ready-needs-agent: updates would never end"],
  [{ workload: "StatefulSet", agents: { countServers: "endpoints" } }, "agents.countServers: a StatefulSet has one"],
  [
    { options: { "server-count-service": "culvert/x" } },
    "at '/options/server-count-service': value must be 'absent here: set agents.countServers instead'",
  ],
  [
    { directory: { urls: ["nats://user:secret@nats:4222"] } },
    "at '/directory/urls/0': value must be 'a URL such as nats://nats:4222, without a password'",
  ],
  [
    { options: { directory: ["nats://nats"] } },
    "at '/options/directory': value must be 'absent here: set directory.urls",
  ],
  [
    {
      clusters: { from: [{ configMap: "fleet" }] },
      tls: { source: "existing" },
      directory: { urls: ["nats://nats"] },
    },
    "tls.existing.peers.secret: directory.urls needs the Secret",
  ],
  [
    { directory: { urls: ["nats://nats"] }, ports: { peers: 8092 } },
    "are both 8092: give each port a number of its own",
  ],
  [{ tls: { source: "vault" } }, "at '/tls/source': value must be one of 'generated', 'certManager', 'existing'"],
  [{ tls: { source: "existing" } }, "tls.existing.agents.secret: name the Secret with the certificate"],
  [
    { tls: { existing: { agents: { secretName: "x" } } } },
    "at '/tls/existing/agents': additional properties 'secretName'",
  ],
  [
    { ports: { preset: "k3s" } },
    "at '/ports/preset': value must be one of 'culvert', 'anp', 'konnectivity', 'hypershift'",
  ],
  [{ ports: { agents: 70_000 } }, "at '/ports/agents': maximum: got 70,000, want 65,535"],
  [{ options: { "conect-timeout": "8s" } }, "at '/options': additional properties 'conect-timeout' not allowed"],
  [{ options: { "connect-timeout": 8 } }, `at '/options/connect-timeout': ${DURATION}`],
  [{ options: { "connect-timeout": "8" } }, `at '/options/connect-timeout': ${DURATION}`],
  [{ options: { "header-limit": "16k" } }, "at '/options/header-limit': value must be 'a size such as 64KiB or 16MiB'"],
  [{ options: { "log-level": "verbose" } }, "at '/options/log-level': value must be one of 'trace', 'debug', 'info'"],
  [
    { options: { "agent-port": 8091 } },
    "at '/options/agent-port': value must be 'absent here: set ports.agents instead'",
  ],
  [{ options: { "cluster-cert": "x" } }, "at '/options/cluster-cert': value must be 'absent here: set tls instead'"],
  [
    { image: { digest: "latest" } },
    "at '/image/digest': value must be 'a digest such as sha256: and 64 hexadecimal digits'",
  ],
  [{ agents: { hosts: "a.example.com" } }, "at '/agents/hosts': got string, want array"],
  [
    { agents: { hosts: ["https://culvert.example.com"] } },
    "at '/agents/hosts/0': value must be 'a name or an IP address, without scheme and port'",
  ],
  [{ agents: { hosts: ["culvert.example.com:8091"] } }, "at '/agents/hosts/0': value must be 'a name or an IP address"],
  [{ callers: { hosts: ["culvert/path"] } }, "at '/callers/hosts/0': value must be 'a name or an IP address"],
  [
    { agents: { service: { loadBalancerSourceRanges: ["203.0.113.7"] } } },
    `at '/agents/service/loadBalancerSourceRanges/0': ${NETWORK}`,
  ],
  [
    { agents: { service: { loadBalancerSourceRanges: ["10.0.0.0/8", "10.0.0.0/33"] } } },
    `at '/agents/service/loadBalancerSourceRanges/1': ${NETWORK}`,
  ],
  [
    { router: { service: { loadBalancerSourceRanges: ["everybody"] } } },
    `at '/router/service/loadBalancerSourceRanges/0': ${NETWORK}`,
  ],
  [{ podDisruptionBudget: { maxUnavailable: "half" } }, `at '/podDisruptionBudget/maxUnavailable': ${BUDGET}`],
  [{ podDisruptionBudget: { maxUnavailable: -1 } }, `at '/podDisruptionBudget/maxUnavailable': ${BUDGET}`],
  [{ podDisruptionBudget: { maxUnavailable: "1" } }, `at '/podDisruptionBudget/maxUnavailable': ${BUDGET}`],
  [
    { clusters: { documents: { blue: { agnets: {} } } } },
    "at '/clusters/documents/blue': additional properties 'agnets' not allowed",
  ],
  [
    { clusters: { documents: { blue: { callers: { token: { tokenReveiw: {} } } } } } },
    "at '/clusters/documents/blue/callers/token': additional properties 'tokenReveiw' not allowed",
  ],
  [
    { clusters: { documents: { blue: { limits: { streems: 5 } } } } },
    "at '/clusters/documents/blue/limits': additional properties 'streems' not allowed",
  ],
  [
    { clusters: { documents: { blue: { agents: { sni: "blue.example.com" } } } } },
    "at '/clusters/documents/blue/agents/sni': got string, want array",
  ],
  [{ clusters: { documents: { blue: { name: "red" } } } }, "clusters.documents.blue.name: the key is the name already"],
  [{ agents: { service: { type: "Loadbalancer" } } }, "at '/agents/service/type': value must be one of 'ClusterIP'"],
  [{ callers: { transport: "socket" } }, "callers.transport: a unix socket reaches callers in the same pod only"],
  [{ extraArgs: "--log-level=debug" }, "at '/extraArgs': got string, want array"],
  [{ extraArgs: ["--drain-timeout=10m"] }, `at '/extraArgs/0': ${DRAIN("options")}`],
  [{ extraArgs: ["--graceful-shutdown-timeout", "10m"] }, `at '/extraArgs/0': ${DRAIN("options")}`],
  [{ router: { extraArgs: ["--drain_timeout=10m"] } }, `at '/router/extraArgs/0': ${DRAIN("router.options")}`],
  [{ preStopSeconds: "70s" }, "at '/preStopSeconds': got string, want integer"],
  [
    { preStopSeconds: 70, options: { "drain-timeout": "5m" }, terminationGracePeriodSeconds: 30 },
    "terminationGracePeriodSeconds: preStopSeconds, options.shutdown-delay, options.drain-timeout and 10 seconds are 380",
  ],
  [{ ingress: { enabled: true } }, "agents.hosts: ingress needs the names by which agents reach the server"],
  [{ agents: { hosts }, gateway: { tlsRoute: { enabled: true } } }, "gateway.tlsRoute.parentRefs: name the Gateway"],
  [
    { gateway: { tlsRoute: { enabled: true, parentRefs: [{ name: "public" }], hostnames: ["a.example.com"] } } },
    "agents.hosts: add a.example.com, to which gateway.tlsRoute.hostnames lead",
  ],
  [{ egress: { url: "https://other:8090" } }, "callers.hosts: add other, the host of egress.url"],
  [{ clusters: { documents: { Blue_1: {} } } }, "clusters.documents.Blue_1: a cluster needs a name of a-z"],
  [
    { clusters: { documents: { blue: { agents: { identities: ["CN=blue-agent"] } } } } },
    "clusters.documents.blue.callers.identities: one CA signs for agents and callers",
  ],
  [
    { clusters: { documents: { blue: { callers: { identities: ["CN=blue"] } } } } },
    "clusters.documents.blue.agents.identities: one CA signs for agents and callers",
  ],
  [
    { ...terminating, ports: { agentsInsecure: 0 } },
    "ports.agentsInsecure: an ingress with termination terminate leads",
  ],
  [
    { ...terminating, agents: { hosts, service: { port: 8098 } } },
    "agents.service.port: it is the number of ports.agentsInsecure",
  ],
  [
    { ...terminating, agents: { hosts, service: { type: "LoadBalancer" } } },
    "agents.service.type: with ingress.termination terminate, the Service has a port in clear text",
  ],
  [{ ...terminating, router: { enabled: true }, ports: { agents: 0 } }, "ports.agents: the router leads to this port"],
  [{ agents: { service: { name: "culvert-server" } } }, "two of the Services culvert-server, culvert-server, culvert-"],
  [
    { workload: "StatefulSet", replicas: 2, agents: { service: { type: "NodePort", nodePorts: [30001] } } },
    "agents.service.nodePorts: there are 2 Services for agents",
  ],
  [{ podDisruptionBudget: { maxUnavailable: "0%" } }, "podDisruptionBudget.maxUnavailable: with 0 no node"],
  [
    { options: { "health-bind-address": "127.0.0.1" } },
    "options.health-bind-address: the kubelet's probes do not reach",
  ],
  [{ image: { repository: "registry.example.com/culvert:1.2" } }, "at '/image/repository': value must be 'an image"],
  [{ image: { repository: "" } }, "at '/image/repository': value must be 'an image without tag and digest'"],
  [{ fullnameOverride: "Foo_Bar" }, "at '/fullnameOverride': value must be 'a name of a-z, 0-9 and - inside'"],
  [{ extraEnv: [{ name: "A", value: 8 }] }, "at '/extraEnv/0/value': value must be 'a text, so put numbers"],
];

const OF_AGENT: readonly (readonly [Values, string])[] = [
  [{}, "servers is empty: name at least one server"],
  [
    { servers: ["https://culvert.example.com"] },
    "at '/servers/0': value must be 'a URL such as wss://culvert.example.com:443'",
  ],
  [{ ...AGENT, auth: {} }, "auth.certificate.existingSecret"],
  [{ ...AGENT, auth: { method: "password" } }, "at '/auth/method': value must be one of 'certificate', 'token'"],
  [{ ...AGENT, token: {} }, "at '': additional properties 'token' not allowed"],
  [{ ...AGENT, kind: "StatefulSet" }, "at '/kind': value must be one of 'Deployment', 'DaemonSet'"],
  [{ ...AGENT, uplinks: "some" }, "at '/uplinks': value must be 'all, or a number in quotes such as \"6\"'"],
  [{ ...AGENT, agentIdFrom: "node" }, "kind"],
  [{ ...AGENT, podMonitor: { enabled: true } }, "podMonitor.enabled: networkPolicy.metricsFrom is empty"],
  [{ ...AGENT, options: { keepalvie: "30s" } }, "at '/options': additional properties 'keepalvie' not allowed"],
  [{ ...AGENT, options: { keepalive: 30 } }, `at '/options/keepalive': ${DURATION}`],
  [{ ...AGENT, options: { "agent-cert": "x" } }, "value must be 'absent here: set auth.certificate instead'"],
  [{ ...AGENT, proxy: { urls: ["proxy:3128"] } }, "at '/proxy/urls/0': value must be 'a URL such as http://proxy"],
  [{ ...AGENT, image: { digest: "x" } }, "at '/image/digest': value must be 'a digest such as sha256:"],
  [{ ...AGENT, extraArgs: ["--log-level=debug", "--drain-timeout=10m"] }, `at '/extraArgs/1': ${DRAIN("options")}`],
  [{ ...AGENT, podDisruptionBudget: { minAvailable: "1.5%" } }, `at '/podDisruptionBudget/minAvailable': ${BUDGET}`],
  [{ ...AGENT, servers: ["wss://"] }, "at '/servers/0': value must be 'a URL such as wss://culvert.example.com:443'"],
  [{ ...AGENT, servers: ["wss://a.example:99999"] }, "at '/servers/0': value must be 'a URL such as wss://culvert"],
  [{ ...AGENT, targets: { allow: ["10.0.0.0/33"] } }, `at '/targets/allow/0': ${NETWORK}`],
  [
    { ...AGENT, extraEnv: [{ name: "A", value: true }] },
    "at '/extraEnv/0/value': value must be 'a text, so put numbers",
  ],
  [
    { ...AGENT, podDisruptionBudget: { minAvailable: 2 } },
    "podDisruptionBudget.minAvailable: 2 of 2 agents leave none",
  ],
  [
    { ...AGENT, podDisruptionBudget: { minAvailable: "51%" } },
    "podDisruptionBudget.minAvailable: 51% of 2 agents leave",
  ],
  [{ ...AGENT, podDisruptionBudget: { maxUnavailable: 0 } }, "podDisruptionBudget.maxUnavailable: with 0 no node"],
  [{ ...AGENT, targets: { allow: "10.0.0.0/8" } }, "at '/targets/allow': got string, want array"],
];

for (const [chart, wrong] of Object.entries({ "culvert-server": OF_SERVER, "culvert-agent": OF_AGENT })) {
  describe(`${chart} refuses`, { skip: helmMissing() }, () => {
    const answers = mapConcurrently(wrong, ([values]) => template({ name: chart, chart: chart as Chart, values }));

    for (const [index, [values, sentence]] of wrong.entries()) {
      test(`${JSON.stringify(values)}`, async () => {
        const said = (await answers)[index];
        assert.notEqual(said?.code, 0, "helm takes it");
        assert.ok(said?.stderr.includes(sentence), said?.stderr);
      });
    }
  });
}
