import { mapConcurrently } from "../../harness/concurrently.ts";
import { namespaceOf, type Render, renderAll } from "../../helm/harness/helm.ts";
import { examples, oddInstallations } from "../../helm/harness/installations.ts";
import { withMistake } from "../../helm/harness/mistake.ts";
import type { KubeObject, Pod } from "../../helm/harness/objects.ts";
import { type Check, expect, type Seen, type Stage } from "../check.ts";
import { customResourceDefinitions } from "../world/custom-resources.ts";
import type { Kubectl } from "../world/kubectl.ts";
import { restrictedNamespace } from "../world/objects.ts";

/** None of it goes through culvert: one lane is enough. */
export const CHARTS: Check = {
  name: "objects of the charts are taken by the API server, and mistakes in them refused",
  deadlineMs: 120_000,
  lanes: ["direct"],
  run: takenOrRefused,
};

const PLAIN = "culvert-server: nothing set";
const ROUTED = "culvert-server: cert-manager makes a CA, and a TLSRoute leads agents";
const MONITORED = "culvert-server: an issuer that is there, a Route, and monitors";

/** A render, a mistake in it, and the API server's message about it. */
const MISTAKES: readonly (readonly [string, RegExp, string, string])[] = [
  [PLAIN, /terminationGracePeriodSeconds:/, "terminationGracePeriod:", 'unknown field "terminationGracePeriod"'],
  [
    PLAIN,
    /runAsNonRoot: true/,
    "runAsNonRoot: false",
    'violates PodSecurity "restricted:latest": runAsNonRoot != true',
  ],
  [PLAIN, /targetPort: 8091/, "targetPort: 80910", "must be between 1 and 65535"],
  [ROUTED, /hostnames:/, "hostName:", 'unknown field "hostName"'],
  [ROUTED, /secretName: culvert-server-server/, "secret: culvert-server-server", 'missing required field "secretName"'],
  [MONITORED, /endpoints:/, "endpoint:", 'unknown field "endpoint"'],
  [MONITORED, /for: 1m/, "for: soon", "spec.groups[0].rules[2].for: Invalid value"],
  [MONITORED, /termination: passthrough/, "termination: through", 'Unsupported value: "through"'],
];

async function takenOrRefused({ kubectl }: Stage): Promise<Seen> {
  const { renders, failures } = await renderAll([...examples(), ...oddInstallations()]);
  expect(failures.length === 0, "YAML of objects", failures.join("\n"));
  await kubectl.create([...customResourceDefinitions(), ...namespacesOf(renders).map(restrictedNamespace)]);
  await kubectl.must(["wait", "crd", "--all", "--for=condition=Established", "--timeout=30s"]);
  const complaints = (await mapConcurrently(renders, (render) => objections(kubectl, render))).flat();
  expect(complaints.length === 0, "no objection", complaints.join("\n"));
  await mapConcurrently(MISTAKES, async ([name, mistake, instead, sentence]) => {
    const said = (await objections(kubectl, await withMistake(name, mistake, instead))).join("\n");
    expect(said.includes(sentence), `a refusal with ${sentence}`, said);
  });
  const count = renders.flatMap(objectsAndPods).length;
  return { printed: `${count} objects of ${renders.length} installations taken, ${MISTAKES.length} mistakes refused` };
}

/** The API server's messages about the objects of a render and its pods, warnings included. */
async function objections(kubectl: Kubectl, render: Render): Promise<string[]> {
  const items = objectsAndPods(render);
  const dryRun = ["apply", "--dry-run=server", "--validate=strict", "-n", namespaceOf(render.installation), "-f", "-"];
  const stdin = JSON.stringify({ apiVersion: "v1", kind: "List", items });
  const { code, stderr } = await kubectl.run(dryRun, { stdin });
  return code === 0 && stderr === "" ? [] : [`${render.installation.name}: exit code ${code}\n${stderr}`];
}

function objectsAndPods({ objects, pods, installation }: Render): object[] {
  const templates = pods.filter(({ owner }) => owner.kind !== "Pod");
  return [...objects, ...templates.map((pod, index) => barePod(pod, `pod-${index}`, namespaceOf(installation)))];
}

/** A pod by itself: of a workload with a pod that Pod Security forbids, an API server only warns. */
function barePod({ labels, annotations, spec }: Pod, name: string, namespace: string): KubeObject {
  return { apiVersion: "v1", kind: "Pod", metadata: { name, namespace, labels, annotations }, spec };
}

function namespacesOf(renders: readonly Render[]): string[] {
  const names = new Set(renders.map(({ installation }) => namespaceOf(installation)));
  return [...names].filter((name) => name !== "kube-system"); // an API server has it, and allows everything in it
}
