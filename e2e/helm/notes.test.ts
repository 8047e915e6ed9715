import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { TempDir } from "../harness/temp.ts";
import { render, type Values } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { installationCalled } from "./harness/installations.ts";
import { notesOf, withNotes } from "./harness/notes.ts";

const hosts = ["a.example.com"];
const terminating = {
  enabled: true,
  termination: "terminate",
  controllerCIDRs: ["10.0.0.0/8"],
};

/** Values, texts that the notes must have, and texts that they must not have. */
const CASES: Readonly<Record<string, readonly [Values, readonly RegExp[], readonly RegExp[]]>> = {
  "what stays after helm uninstall": [
    {},
    [/delete --ignore-not-found configmap culvert-server-egress$/m, /secret culvert-server-ca culvert-server-server /],
    [/culvert-server-config/],
  ],
  "no image for the agent where it is the chart's": [{}, [/culvert-agent --namespace/], [/--set-string image/]],
  "the server's image for the agent": [
    { image: { repository: "registry.example.com/culvert", tag: "1.2" } },
    [
      /culvert-agent --set-string image\.repository=registry\.example\.com\/culvert --set-string image\.tag=1\.2 --namespace/,
    ],
    [/image\.digest/],
  ],
  "what stays in mode sidecar, and that an upgrade changes nothing there": [
    { mode: "sidecar", sidecar: { podSelector: { app: "apiserver" } } },
    [/configmap culvert-server-egress culvert-server-config$/m, /`helm upgrade` changes nothing in that pod/],
    [],
  ],
  "the CA of an Ingress that ends TLS, for inner TLS": [
    { agents: { hosts }, ingress: terminating, options: { "inner-tls": "auto" } },
    [/existingSecret=culvert-server-agent --set-file outerCA\.pem=ingress-ca\.crt$/m, /set\s+outerCA\.system=true/],
    [],
  ],
  "the CA of an Ingress that ends TLS, for tokens": [
    { agents: { hosts, token: { enabled: true } }, ingress: terminating },
    [/ca\.crt has the CA of the certificate that the Ingress shows/],
    [/get secret culvert-server-server/, /outerCA/],
  ],
  "that tokens are verified in the server's cluster": [
    { agents: { token: { enabled: true } } },
    [/WARNING: the server asks the API of its own cluster about tokens/],
    [],
  ],
  "no warning where a kubeconfig leads to the agents' cluster": [
    { agents: { token: { enabled: true, kubeconfig: { secret: "workload" } } } },
    [/--set auth\.method=token/],
    [/WARNING/],
  ],
  "that a wildcard stands for a name": [
    { agents: { hosts: ["*.agents.example.com"] } },
    [/servers=\{wss:\/\/NAME\.agents\.example\.com:8091\}/, /^NAME stands for a label/m],
    [/\/\/agents\.example/],
  ],
  "how to read a node's port": [
    { agents: { hosts, service: { type: "NodePort" } } },
    [/wss:\/\/a\.example\.com:NODEPORT\}/, /get service culvert-server-agents -o jsonpath/],
    [/8091/],
  ],
  "a node's port": [
    { agents: { hosts, service: { type: "NodePort", nodePorts: [30001] } } },
    [/wss:\/\/a\.example\.com:30001\}/],
    [/NODEPORT/],
  ],
  "the path of the URL": [
    { agents: { hosts }, options: { "agent-path": "/blue" } },
    [/servers=\{wss:\/\/a\.example\.com:8091\/blue\}/],
    [],
  ],
  "how many tunnels agents need for more replicas than they look for": [
    { agents: { hosts }, replicas: 5 },
    [
      /servers=\{wss:\/\/a\.example\.com:8091\}' --set-string uplinks=6/,
      /A pod is ready, and gets callers, while an agent/,
    ],
    [/WARNING/],
  ],
  "that nobody counts the replicas": [
    { agents: { hosts, countServers: "off" }, replicas: 2 },
    [/WARNING: 2 replicas are behind one address, and nobody counts them/],
    [/A pod is ready/, /uplinks/],
  ],
  "that no server is known": [
    { workload: "StatefulSet", replicas: 0 },
    [/servers=\{wss:\/\/SERVER\}/, /SERVER is unknown while `replicas` is 0/],
    [],
  ],
};

describe("the notes of culvert-server say", { skip: helmMissing() }, () => {
  const dir = new TempDir();
  after(() => dir[Symbol.dispose]());
  const folder = withNotes("culvert-server", dir.path);
  const notes = async (values: Values) =>
    notesOf(await render({ name: "notes", chart: "culvert-server", values, folder }));

  for (const [what, [values, expected, unexpected]] of Object.entries(CASES)) {
    test(what, async () => {
      const said = await notes(values);
      for (const pattern of expected) assert.match(said, pattern);
      for (const pattern of unexpected) assert.doesNotMatch(said, pattern);
    });
  }

  test("no command for an agent whose certificate they do not know", async () => {
    const said = await notes(installationCalled("hypershift").values);
    assert.match(said, /take its steps and values for the agent/);
    assert.match(said, /`servers`: wss:\/\/konnectivity-server:8091$/m);
    assert.doesNotMatch(said, /helm --kube-context WORKLOAD install/);
  });
});
