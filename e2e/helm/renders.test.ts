import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { requireBuilt } from "../harness/processes.ts";
import { type Render, renderAll } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { examples, oddInstallations } from "./harness/installations.ts";
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
import { namespacesFit, referencesExist } from "./harness/invariants/references.ts";
import { graceIsEnough, oneAlwaysRuns, preStopWaits } from "./harness/invariants/rollout.ts";
import { podsAreRestricted } from "./harness/invariants/security.ts";
import { selectorsMatch } from "./harness/invariants/selectors.ts";

const OF_OBJECTS = {
  "objects have names and labels that Kubernetes takes, and no two the same": namesAreSound,
  "pods are restricted, and more": podsAreRestricted,
  "selectors choose what they are for": selectorsMatch,
  "documents of clusters and routes are taken": documentsAreTaken,
  "ports that something names exist": portsExist,
  "Secrets, ConfigMaps and accounts that pods name exist": referencesExist,
  "Services whose endpoints are counted exist, and may be read": countedServicesExist,
  "pods are where their Secrets are": namespacesFit,
  "alerts and dashboards ask for metrics that there are": metricsExist,
  "what kube-apiserver mounts outlives the release": mountsOutliveTheRelease,
  "another version of the chart replaces no pod": versionRollsNoPod,
  "an update of a Deployment leaves callers no pod without agents": oldPodsGoAtOnce,
  "the logs of tests are there after them": testsHaveLogs,
  "neither a rolling update nor an eviction takes the last replica": oneAlwaysRuns,
};

const OF_SERVICES = {
  "the rendered command line and its file of options are taken": optionsAreKnown,
  "containers listen on their ports": portsAreListenedOn,
  "pods have time for preStop, drain and 10 s more": graceIsEnough,
  "pods are withdrawn from Services before their process is told to end": preStopWaits,
};

describe("of every example and every odd set of values", { skip: helmMissing() }, () => {
  let renders: readonly Render[] = [];
  let failures: readonly string[] = [];
  let services: readonly Service[] = [];
  before(async () => {
    requireBuilt();
    ({ renders, failures } = await renderAll([...examples(), ...oddInstallations()]));
    services = await servicesOf(renders);
  });

  test("helm renders objects", () => none(failures));

  for (const [name, complaints] of Object.entries(OF_OBJECTS)) {
    test(name, () => none(renders.flatMap((render) => of(render, complaints(render)))));
  }

  for (const [name, complaints] of Object.entries(OF_SERVICES)) {
    test(name, () => none(services.flatMap((service) => of(service.render, complaints(service)))));
  }
});

function of({ installation }: Render, complaints: readonly string[]): string[] {
  return complaints.map((complaint) => `${installation.name}: ${complaint}`);
}

function none(complaints: readonly string[]): void {
  assert.ok(complaints.length === 0, `\n${complaints.join("\n")}`);
}
