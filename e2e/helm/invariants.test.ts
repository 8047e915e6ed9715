import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { requireBuilt } from "../harness/processes.ts";
import type { Render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { optionsAreKnown, portsAreListenedOn, type Service, servicesOf } from "./harness/invariants/commands.ts";
import { countedServicesExist } from "./harness/invariants/counted.ts";
import { documentsAreTaken } from "./harness/invariants/documents.ts";
import {
  mountsOutliveTheRelease,
  oldPodsGoAtOnce,
  testsHaveLogs,
  versionRollsNoPod,
} from "./harness/invariants/lifetime.ts";
import { metricsExist } from "./harness/invariants/metrics.ts";
import { namesAreSound } from "./harness/invariants/names.ts";
import { portsExist } from "./harness/invariants/ports.ts";
import { referencesExist } from "./harness/invariants/references.ts";
import { graceIsEnough, oneAlwaysRuns, preStopWaits } from "./harness/invariants/rollout.ts";
import { podsAreRestricted } from "./harness/invariants/security.ts";
import { selectorsMatch } from "./harness/invariants/selectors.ts";
import { withMistake } from "./harness/mistake.ts";

const PLAIN = "culvert-server: nothing set";
const EXISTING = "culvert-server: existing Secrets with keys of their own, and two replicas of a Deployment";
const STATEFUL = "culvert-server: a StatefulSet on ports of the nodes, and monitors";
const SIDECAR = "culvert-server: a sidecar";
const ROUTED = "culvert-server: a router in front, for this server";
const FLEET = "culvert-server: a fleet with certificates of the Job";
const CLUSTERS = "culvert-server: clusters from values, and options";
const AGENT = "culvert-agent: a certificate";
/** The two examples with exceptions. */
const OPENSHIFT = "hypershift";
const NODE_NETWORK = "hypershift-agent";
const MONITORED_AGENT = "culvert-agent: a DaemonSet with a token, monitored";

type OfRender = (render: Render) => string[];
type OfService = (service: Service) => string[];

/** A mistake in the rendered YAML, and what is said of it. */
const OF_OBJECTS: readonly (readonly [string, RegExp, string, OfRender, RegExp])[] = [
  [
    PLAIN,
    /name: culvert-server-agents/g,
    "name: culvert-server",
    namesAreSound,
    /Service culvert culvert-server is rendered twice/,
  ],
  [PLAIN, /(\n {4}helm.sh\/chart: .*)/, "", namesAreSound, /has no label helm.sh\/chart/],
  [PLAIN, /name: culvert-server-config\n/, "name: Culvert_config\n", namesAreSound, /is no name of at most/],
  [PLAIN, /readOnlyRootFilesystem: true/, "readOnlyRootFilesystem: false", podsAreRestricted, /readOnlyRootFilesystem/],
  [PLAIN, /runAsNonRoot: true/, "runAsNonRoot: false", podsAreRestricted, /runAsNonRoot is not true/],
  [SIDECAR, /runAsNonRoot: true/, "runAsNonRoot: false", podsAreRestricted, /ConfigMap .*runAsNonRoot is not true/],
  [AGENT, /enableServiceLinks: false/, "", podsAreRestricted, /enableServiceLinks/],
  [PLAIN, /runAsUser: 65532/, "", podsAreRestricted, /runAsUser is not 65532/],
  [PLAIN, /fsGroup: 65532/, "", podsAreRestricted, /fsGroup is not 65532/],
  [AGENT, /enableServiceLinks: false/, "$&\n      hostNetwork: true", podsAreRestricted, /hostNetwork is set/],
  [OPENSHIFT, /runAsNonRoot: true/, "", podsAreRestricted, /runAsNonRoot is not true/],
  [OPENSHIFT, /runAsNonRoot: true/, "$&\n        runAsUser: 0", podsAreRestricted, /runAsUser is set/],
  [NODE_NETWORK, /runAsNonRoot: true/, "", podsAreRestricted, /runAsNonRoot is not true/],
  [NODE_NETWORK, /hostNetwork: true/, "", podsAreRestricted, /no pod needs the exception/],
  [
    AGENT,
    /( {6}labels:\n(?: {8}.*\n)*?) {8}app.kubernetes.io\/instance: .*\n/,
    "$1",
    selectorsMatch,
    /chooses nothing/,
  ],
  [STATEFUL, /pod-name: culvert-server-2/, "pod-name: culvert-server-3", selectorsMatch, /Service .* chooses nothing/],
  [
    EXISTING,
    /(kind: PodDisruptionBudget[\s\S]*?)component: server/,
    "$1component: sever",
    selectorsMatch,
    /PodDisruptionBudget/,
  ],
  [PLAIN, /targetPort: 8091/, "targetPort: 8099", portsExist, /leads to port 8099/],
  [
    PLAIN,
    /(readinessProbe:\n\s+httpGet:\n\s+path: \S+\n\s+port:) \S+/,
    "$1 8099",
    portsExist,
    /a probe asks port 8099/,
  ],
  [STATEFUL, /- port: health/, "- port: metrics", portsExist, /ServiceMonitor .* asks port metrics/],
  [
    MONITORED_AGENT,
    /- port: health\n {6}path/,
    "- port: metrics\n      path",
    portsExist,
    /PodMonitor .* asks port metrics/,
  ],
  [EXISTING, /name: callers-ca/, "name: caller-ca", referencesExist, /needs ConfigMap caller-ca, which nobody makes/],
  [PLAIN, /(volumes:[\s\S]*?)name: culvert-server-config/, "$1name: config", referencesExist, /needs ConfigMap config/],
  [
    PLAIN,
    /(secret:\n\s+name: culvert-server)-server/,
    "$1-serving",
    referencesExist,
    /needs Secret culvert-server-serving/,
  ],
  [
    EXISTING,
    /server-count-service: culvert\//,
    "server-count-service: other/",
    countedServicesExist,
    /is no Service here/,
  ],
  [
    EXISTING,
    /endpointslices/,
    "endpoints",
    countedServicesExist,
    /account culvert-server may not watch endpointslices/,
  ],
  [FLEET, /- --peers/, "- --others", referencesExist, /needs Secret culvert-server-peer/],
  [AGENT, /key: culvert.yaml/, "key: agent.yaml", referencesExist, /reads agent.yaml of ConfigMap/],
  [STATEFUL, /culvert_server_agents/, "culvert_server_agent", metricsExist, /asks for culvert_server_agent, which/],
  [ROUTED, /( {4})to:/, "$1too:", documentsAreTaken, /ConfigMap culvert-server-routes, routes.yaml: .*"too"/],
  [CLUSTERS, /identities:/, "identites:", documentsAreTaken, /ConfigMap culvert-server-clusters, .*"identites"/],
  [EXISTING, /maxUnavailable: 0/, "maxUnavailable: 1", oneAlwaysRuns, /may take away pods/],
  [
    EXISTING,
    /(kind: PodDisruptionBudget[\s\S]*?)maxUnavailable: 1/,
    "$1maxUnavailable: 2",
    oneAlwaysRuns,
    /lets all pods/,
  ],
  [
    EXISTING,
    /(kind: PodDisruptionBudget[\s\S]*?)maxUnavailable: 1/,
    "$1maxUnavailable: 0",
    oneAlwaysRuns,
    /lets no pod/,
  ],
  [EXISTING, /kind: PodDisruptionBudget/, "kind: Budget", oneAlwaysRuns, /no PodDisruptionBudget/],
  [NODE_NETWORK, /maxSurge: 0/, "maxSurge: 1", oneAlwaysRuns, /ports of the node/],
  [
    PLAIN,
    /resource-policy: keep/,
    "resource-policy: k",
    mountsOutliveTheRelease,
    /culvert-server-egress: helm uninstall/,
  ],
  [
    SIDECAR,
    /(name: culvert-server-config\n(?:.*\n)*?.*resource-policy:) keep/,
    "$1 k",
    mountsOutliveTheRelease,
    /culvert-server-config: helm uninstall/,
  ],
  [PLAIN, /(template:\n\s+metadata:\n\s+labels:)/, "$1\n        helm.sh/chart: x", versionRollsNoPod, /its pods/],
  [PLAIN, /(kind: Deployment[\s\S]*?spec:)/, "$1\n  minReadySeconds: 10", oldPodsGoAtOnce, /keeps the agents/],
  [PLAIN, /(hook: test\n.*before-hook-creation)/, "$1,hook-succeeded", testsHaveLogs, /Pod .*: helm test --logs/],
  [AGENT, /kind: Pod\n/, "kind: Service\n", testsHaveLogs, /Service .*: helm test --logs/],
];

const OF_SERVICES: readonly (readonly [string, RegExp, string, OfService, RegExp])[] = [
  [PLAIN, /(args:\n\s+- server\n)/, "$1            - --agent-prot=1\n", optionsAreKnown, /agent-port/],
  [PLAIN, /(culvert.yaml: \|\n)/, "$1    agent-prot: 1\n", optionsAreKnown, /agent-port/],
  [PLAIN, /mountPath: \/etc\/culvert\/callers/, "mountPath: /etc/culvert/caller", optionsAreKnown, /does not exist/],
  [FLEET, /CULVERT_SERVER_PEER_ADDRESS/, "POD_IP", optionsAreKnown, /needs --peer-address/],
  [FLEET, /(- name: peers\n\s+containerPort:) \d+/, "$1 8099", portsAreListenedOn, /nobody listens on port 8099/],
  [AGENT, /(- name: health\n\s+containerPort:) \d+/, "$1 8099", portsAreListenedOn, /nobody listens on port 8099/],
  [PLAIN, /terminationGracePeriodSeconds: \d+/, "terminationGracePeriodSeconds: 41", graceIsEnough, /is 41, not 42/],
  [AGENT, /terminationGracePeriodSeconds: \d+/, "terminationGracePeriodSeconds: 39", graceIsEnough, /is 39, not 40/],
  [PLAIN, /lifecycle:/, "lifeCycle:", preStopWaits, /no preStop/],
];

describe("a mistake in a chart is seen:", { skip: helmMissing() }, () => {
  before(requireBuilt);

  for (const [installation, mistake, instead, complaints, expected] of OF_OBJECTS) {
    test(`${expected.source} in ${installation}`, async () => {
      assert.match(complaints(await withMistake(installation, mistake, instead)).join("\n"), expected);
    });
  }

  for (const [installation, mistake, instead, complaints, expected] of OF_SERVICES) {
    test(`${expected.source} in ${installation}`, async () => {
      const services = await servicesOf([await withMistake(installation, mistake, instead)]);
      assert.match(services.flatMap(complaints).join("\n"), expected);
    });
  }
});
