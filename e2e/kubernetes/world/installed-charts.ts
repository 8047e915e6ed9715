import { mkdtempSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { waitFor } from "../../harness/wait.ts";
import { CHARTS } from "../../helm/harness/helm.ts";
import { findHelm } from "../../helm/harness/helm-program.ts";
import {
  dataOf,
  type Fields,
  type KubeObject,
  type Labels,
  nameOf,
  type Pod,
  parseObjects,
  podsOf,
} from "../../helm/harness/objects.ts";
import { sidecarPods } from "../../helm/harness/sidecar.ts";
import type { Kubectl } from "./kubectl.ts";
import { type Node, PodProcess } from "./pod-process.ts";

const JOB_MS = 30_000;

/** Fields that a node adds to a pod of an API server that has neither scheduler nor controllers. */
export interface Place extends Omit<Node, "sources"> {
  /** Fields that admission adds to the security of pods that leave them out. */
  readonly podSecurity?: Fields;
}

/** helm and an API server without controllers and nodes; what those would do is done here. */
export class InstalledCharts {
  readonly #kubectl: Kubectl;
  readonly #folder: string;

  /** `folder` is for files of the pods and of the lines that are run, and empty. */
  constructor(kubectl: Kubectl, folder: string) {
    this.#kubectl = kubectl;
    this.#folder = folder;
    symlinkSync(CHARTS, join(folder, "helm"));
  }

  /** Runs a line for a shell, beside a folder `helm` with the charts, and returns what it printed. */
  async shell(line: string, stdin = ""): Promise<string> {
    const options = { stdin, cwd: this.#folder };
    return (await this.#kubectl.shell(line, [dirname(findHelm() ?? "")], options)).stdout;
  }

  /** The same for a line in which helm waits for the Job of a hook, which is run meanwhile. */
  async shellWithJob(line: string, job: JobPlace, stdin = ""): Promise<string> {
    const helm = this.shell(line, stdin);
    const hook = this.#runJob(job);
    for (const promise of [helm, hook]) promise.catch(() => {}); // the first failure is thrown, the other is expected
    await Promise.race([helm, hook]);
    return await helm;
  }

  /** The pods that `helm test` makes. */
  async testsOf(release: string, namespace: string, place: Place): Promise<PodProcess[]> {
    const hooks = parseObjects(await this.shell(`helm get hooks ${release} --namespace ${namespace}`));
    const tests = hooks.filter(({ kind }) => kind === "Pod");
    return await Promise.all(tests.map((test) => this.process(test, place)));
  }

  /** A pod of an object, with the Secrets, ConfigMaps and tokens that its namespace has now. */
  async process(object: KubeObject, place: Place): Promise<PodProcess> {
    const [pod] = [...podsOf([object]), ...sidecarPods([object], {})];
    if (pod === undefined) throw new Error(`${nameOf(object)} makes no pod`);
    const securityContext = { ...place.podSecurity, ...pod.spec.securityContext };
    return new PodProcess(
      { ...place, sources: await this.#sources(pod) },
      { ...pod, spec: { ...pod.spec, securityContext } },
      mkdtempSync(join(this.#folder, "pod-")),
    );
  }

  /** The name of a Job ends with a hash of its template. */
  async #runJob({ prefix, namespace, place }: JobPlace): Promise<void> {
    const present = async () => {
      const jobs = await this.#kubectl.get("job", "-n", namespace);
      return jobs.find(({ metadata }) => metadata.name.startsWith(prefix));
    };
    const job = await waitFor(present, { deadlineMs: JOB_MS, everyMs: 200, what: `a Job ${prefix}…` });
    const { name } = job.metadata;
    const process = await this.process(job, place);
    const { code, stdout, stderr } = await process.run();
    if (code !== 0) throw new Error(`exit code ${code} of Job ${name}\n${stdout}${stderr}`);
    const patch = `--patch=${JSON.stringify(complete(new Date().toISOString()))}`;
    await this.#kubectl.must(["patch", "job", name, "-n", namespace, "--subresource=status", "--type=merge", patch]);
  }

  async #sources({ owner, spec }: Pod) {
    const namespace = owner.metadata.namespace ?? "default";
    const objects = await this.#kubectl.get("secrets,configmaps", "-n", namespace);
    const found = new Map(objects.map((object) => [nameOf(object), dataOf(object)]));
    const tokens = new Map<string | undefined, string>();
    for (const audience of audiencesOf(spec)) {
      const account = spec.serviceAccountName ?? "default";
      const flags = audience === undefined ? [] : [`--audience=${audience}`];
      const { stdout } = await this.#kubectl.must(["create", "token", account, "-n", namespace, ...flags]);
      tokens.set(audience, stdout.trim());
    }
    return {
      keys: (kind: "Secret" | "ConfigMap", name: string): Labels | undefined => found.get(`${kind} ${name}`),
      token: (audience: string | undefined) => tokens.get(audience) ?? "",
    };
  }
}

/** A Job that a hook makes, and where it runs. */
interface JobPlace {
  readonly prefix: string;
  readonly namespace: string;
  readonly place: Place;
}

function audiencesOf({ volumes = [], automountServiceAccountToken }: Pod["spec"]): (string | undefined)[] {
  const projected = volumes
    .flatMap((volume) => volume.projected?.sources ?? [])
    .flatMap(({ serviceAccountToken }) => (serviceAccountToken ? [serviceAccountToken.audience] : []));
  return [...projected, ...(automountServiceAccountToken ? [undefined] : [])];
}

/** The status that the controller of Jobs reports. */
function complete(now: string): object {
  const condition = (type: string) => ({ type, status: "True", lastProbeTime: now, lastTransitionTime: now });
  const conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
  return { status: { startTime: now, completionTime: now, succeeded: 1, conditions } };
}
