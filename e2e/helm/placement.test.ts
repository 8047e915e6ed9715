import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Installation, render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";

const PLACE = { nodeSelector: { dedicated: "culvert" }, tolerations: [{ key: "dedicated", operator: "Exists" }] };
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
        const { nodeSelector, tolerations } = spec as Partial<typeof PLACE>;
        assert.deepEqual({ nodeSelector, tolerations }, PLACE, `${owner.kind} ${owner.metadata.name}`);
      }
      assert.ok(
        pods.some(({ owner }) => owner.kind === "Pod"),
        "the pod of helm test is among them",
      );
    });
  }

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
