import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { mapConcurrently } from "../harness/concurrently.ts";
import { TempDir } from "../harness/temp.ts";
import { CHART_NAMES, type Installation, type Render, render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { examples, oddInstallations } from "./harness/installations.ts";
import { secretsMadeBy } from "./harness/invariants/references.ts";
import { NEXT_VERSION, nextVersion } from "./harness/next-version.ts";
import { type KubeObject, nameOf, podsOf, specOf } from "./harness/objects.ts";

const WORKLOADS = ["Deployment", "DaemonSet", "StatefulSet"];
/** Kubernetes refuses any other change of a StatefulSet. */
const CHANGEABLE = [
  "replicas",
  "ordinals",
  "template",
  "updateStrategy",
  "persistentVolumeClaimRetentionPolicy",
  "minReadySeconds",
];

describe("an upgrade to the next version of a chart", { skip: helmMissing() }, () => {
  test("replaces no certificate, and nothing that Kubernetes will not have changed", async () => {
    using dir = new TempDir();
    const installations = [...examples(), ...oddInstallations()];
    const before = await mapConcurrently(installations, render);
    const folders = new Map(CHART_NAMES.map((chart) => [chart, nextVersion(chart, dir.path)]));
    const next = installations.map((one) => ({
      ...one,
      folder: folders.get(one.chart) ?? assert.fail(),
      isUpgrade: true,
    }));
    const after = await mapConcurrently(next, render);
    for (const [index, old] of before.entries()) compare(old, after[index] ?? assert.fail());
  });
});

function compare({ installation, objects: before }: Render, { objects: after }: Render): void {
  const where = (object: KubeObject) => `${installation.name}, ${nameOf(object)}`;
  const next = (object: KubeObject) =>
    after.find(({ kind, metadata }) => kind === object.kind && metadata.name === object.metadata.name) ??
    assert.fail(`${where(object)} is gone`);
  for (const object of before.filter(({ kind }) => kind !== "Job")) next(object);
  // The template of a Job cannot be changed: another image is another Job, as `kubectl apply` needs it.
  for (const { metadata } of before.filter(({ kind }) => kind === "Job")) {
    const isSame = after.some(({ kind, metadata: { name } }) => kind === "Job" && name === metadata.name);
    assert.ok(!isSame || digest(installation), `${metadata.name} stays`);
  }
  for (const object of before.filter(({ kind }) => kind === "Secret" || kind === "Certificate" || kind === "Issuer")) {
    assert.deepEqual(contentOf(next(object)), contentOf(object), where(object));
  }
  for (const object of before.filter(({ kind }) => WORKLOADS.includes(kind))) {
    assert.deepEqual(unchangeable(next(object)), unchangeable(object), where(object));
    const [pod, newPod] = [podsOf([object])[0], podsOf([next(object)])[0]];
    assert.deepEqual(newPod?.spec.volumes, pod?.spec.volumes, `${where(object)} mounts something else`);
    assert.ok(
      JSON.stringify(newPod).includes(NEXT_VERSION) || digest(installation),
      `${where(object)} runs the old version`,
    );
  }
  for (const object of before.filter(({ kind }) => kind === "Service")) {
    const { selector } = specOf(object);
    assert.deepEqual(specOf(next(object))["selector"], selector, `${where(object)} loses the old pods`);
  }
  for (const secret of after.flatMap(secretsMadeBy)) {
    assert.ok(
      !after.some(({ kind, metadata }) => kind === "Secret" && metadata.name === secret),
      `${secret} is rendered`,
    );
  }
}

/** An image that is named by its digest is the same image. */
function digest({ values }: Installation): boolean {
  return JSON.stringify(values).includes("sha256:");
}

/** Labels name the version of the chart, and may. */
function contentOf(object: KubeObject): unknown {
  const { metadata: _, ...content } = object;
  return content;
}

function unchangeable(object: KubeObject): unknown {
  const spec = specOf(object);
  if (object.kind !== "StatefulSet") return spec["selector"];
  return Object.fromEntries(Object.entries(spec).filter(([field]) => !CHANGEABLE.includes(field)));
}
