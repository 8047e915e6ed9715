import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Installation, render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";

const PLACE = {
  nodeSelector: { dedicated: "culvert" },
  tolerations: [{ key: "dedicated", operator: "Exists" }],
  affinity: { nodeAffinity: {} },
  priorityClassName: "system-cluster-critical",
};
/** A ResourceQuota may want limits of every pod, and Istio a word at each. */
const HELPERS = {
  resources: { limits: { cpu: "1", memory: "100Mi" } },
  podAnnotations: { "sidecar.istio.io/inject": "false" },
  podLabels: { team: "network" },
};
const SERVER: Installation = { name: "culvert-server", chart: "culvert-server", values: PLACE };
const AGENT: Installation = {
  name: "culvert-agent",
  chart: "culvert-agent",
  values: { ...PLACE, servers: ["wss://culvert.example.com"], auth: { certificate: { existingSecret: "agent" } } },
};

describe("where the objects of a release go", { skip: helmMissing() }, () => {
  for (const installation of [SERVER, AGENT]) {
    test(`all pods of ${installation.name}, hooks and tests too, run on the nodes that the values name`, async () => {
      const { pods } = await render(installation);
      for (const { owner, spec } of pods) {
        const { nodeSelector, tolerations, affinity, priorityClassName } = spec as Partial<typeof PLACE>;
        const place = { nodeSelector, tolerations, affinity, priorityClassName };
        assert.deepEqual(place, PLACE, `${owner.kind} ${owner.metadata.name}`);
      }
      assert.ok(
        pods.some(({ owner }) => owner.kind === "Pod"),
        "the pod of helm test is among them",
      );
    });
  }

  for (const [installation, key] of [
    [SERVER, "jobs"],
    [AGENT, "tests"],
  ] as const) {
    test(`hooks and tests of ${installation.name} have resources, annotations and labels of their own`, async () => {
      const { objects, pods } = await render({ ...installation, values: { ...installation.values, [key]: HELPERS } });
      const helpers = pods.filter(({ owner }) => owner.kind === "Pod" || owner.kind === "Job");
      assert.ok(helpers.length > 0);
      for (const { owner, labels, spec } of helpers) {
        const { name } = owner.metadata;
        assert.equal(labels["team"], "network", name);
        for (const { resources } of spec.containers ?? []) {
          assert.deepEqual(resources?.limits, HELPERS.resources.limits, name);
        }
      }
      const annotated = objects
        .filter(({ kind }) => kind === "Pod" || kind === "Job")
        .map((each) => JSON.stringify(each));
      for (const text of annotated) assert.match(text, /"sidecar\.istio\.io\/inject":"false"/);
    });
  }

  test("the file of kube-apiserver is not made where its URL would fit no cluster", async () => {
    const files = async (values: Installation["values"]) => {
      const { objects } = await render({ ...SERVER, values });
      return objects.filter(({ kind, metadata }) => kind === "ConfigMap" && /egress/.test(metadata.name)).length;
    };
    const clusters = { from: [{ secret: "clusters" }] };
    assert.deepEqual([await files({}), await files({ clusters })], [1, 0]);
    assert.equal(await files({ clusters, egress: { url: "https://blue.example.com:8090" } }), 1);
  });

  test("releases of two namespaces share no name of an object that has no namespace", async () => {
    const [first, second] = await Promise.all([bindingOf("a-b", "c"), bindingOf("a", "b-c")]);
    assert.notEqual(first, second);
  });
});

async function bindingOf(namespace: string, release: string): Promise<string> {
  const values = { fullnameOverride: release, rbac: { tokenReview: true } };
  const { objects } = await render({ name: release, chart: "culvert-server", namespace, release, values });
  const binding = objects.find(({ kind }) => kind === "ClusterRoleBinding");
  assert.ok(binding, "the chart renders a ClusterRoleBinding");
  return binding.metadata.name;
}
