import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Mount, SEARCH_PATH } from "../../harness/machine-root.ts";
import type { Program } from "../../harness/program.ts";
import { within } from "../../harness/wait.ts";
import type { Container, Pod, Probe, VolumeMount } from "../../helm/harness/objects.ts";
import { type Sources, writeVolumes } from "../../helm/harness/pod-files.ts";
import type { Namespace } from "./namespace.ts";
import { inPodRoot } from "./pod-root.ts";
import type { Finished } from "./run.ts";

const ENTRY_POINT = ["culvert"];
const LOOPBACK = ["127.0.0.1 localhost", "::1 localhost"];
/** Where a pod finds the token of its account. */
const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
/** A controller makes this ConfigMap in each namespace. */
const ROOT_CA = "kube-root-ca.crt";
const UNITS: Readonly<Record<string, number>> = { "": 1, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30 };

/** Where a pod is, and what its cluster has. */
export interface Node {
  readonly namespace: Namespace;
  readonly ip: string;
  readonly name: string;
  readonly sources: Sources;
  /** Names that its cluster's DNS has, as lines of a hosts file. */
  readonly hosts: readonly string[];
  /** Variables in the environment of each pod. */
  readonly environment: Readonly<Record<string, string>>;
  /** The CA of its API server, which a pod with an account gets. */
  readonly rootCaFile: string;
}

/**
 * One container of a rendered pod, run by what is written in it, as the kubelet would: files, variables, user and
 * probes.
 */
export class PodProcess {
  readonly #node: Node;
  readonly #pod: Pod;
  readonly #container: Container;
  readonly #folder: string;
  readonly #mounts: readonly Mount[];
  #program: Program | undefined;

  /** `folder` is for its files, and empty. */
  constructor(node: Node, pod: Pod, folder: string) {
    const [container, another] = pod.spec.containers;
    if (container === undefined || another !== undefined) throw new Error("this pod has not exactly one container");
    this.#node = node;
    this.#pod = pod;
    this.#container = container;
    this.#folder = folder;
    this.#mounts = this.#makeMounts();
  }

  get program(): Program {
    if (this.#program === undefined) throw new Error(`${this.#container.name} has not been started`);
    return this.#program;
  }

  get name(): string {
    return this.#container.name;
  }

  /** Where the volume is on this machine that the container has at that path. */
  volumeAt(path: string): string {
    return this.#mounts.find(({ at }) => at === path)?.from ?? fail(`${this.name} has no volume at ${path}`);
  }

  /** The number of one of its ports, by name or number. */
  port(port: number | string): number {
    const found = this.#container.ports?.find(({ name, containerPort }) => port === name || port === containerPort);
    return found?.containerPort ?? fail(`${this.name} has no port ${port}`);
  }

  start(): void {
    const { command = ENTRY_POINT, args = [] } = this.#container;
    this.#program = this.#node.namespace.start(
      this.name,
      this.#inRoot("main", [...command, ...args]),
      this.#variables(),
    );
  }

  /** Runs it to its end, as a Job's pod. */
  async run(): Promise<Finished> {
    const { command = ENTRY_POINT, args = [] } = this.#container;
    return await this.exec([...command, ...args]);
  }

  /** Runs a command in a container of the same kind, beside the process. */
  async exec(command: readonly string[]): Promise<Finished> {
    const name = `exec-${crypto.randomUUID()}`;
    return await this.#node.namespace.run(this.#inRoot(name, command), { env: this.#variables() });
  }

  /** Does a probe succeed, asked once at the pod's address? A probe that the pod does not have fails. */
  async probe(kind: "livenessProbe" | "readinessProbe"): Promise<boolean> {
    const probe: Probe | undefined = this.#container[kind];
    if (probe?.httpGet === undefined) throw new Error(`${this.name} has no ${kind} by HTTP`);
    const { path = "/", port, scheme = "HTTP" } = probe.httpGet;
    const url = `${scheme.toLowerCase()}://${this.#node.ip}:${this.port(port)}${path}`;
    const { stdout } = await this.#node.namespace.run([
      ...["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}"],
      ...["-m", String(probe.timeoutSeconds ?? 1), url],
    ]);
    return Number(stdout) >= 200 && Number(stdout) < 400;
  }

  /**
   * Ends the pod as the kubelet does when it is deleted: preStop, then SIGTERM. Resolves with how the process ended;
   * rejects when the pod's time for all of it is over.
   */
  async terminate(): Promise<string> {
    const { terminationGracePeriodSeconds: seconds = 30 } = this.#pod.spec;
    return await within(this.#stopCleanly(), seconds * 1000, `${this.name} to end in ${seconds} s`);
  }

  async #stopCleanly(): Promise<string> {
    const { exec } = this.#container.lifecycle?.preStop ?? {};
    if (exec !== undefined) {
      const { code, stderr } = await this.exec(exec.command);
      if (code !== 0) throw new Error(`preStop of ${this.name}: exit code ${code}\n${stderr}`);
    }
    this.program.signal("SIGTERM");
    return await this.program.exited;
  }

  /** Each run has a root of its own, with the same volumes. */
  #inRoot(name: string, argv: readonly string[]): string[] {
    const folder = join(this.#folder, name);
    mkdirSync(folder);
    const security = { ...this.#pod.spec.securityContext, ...this.#container.securityContext };
    const group = security["fsGroup"];
    return inPodRoot(folder, argv, {
      user: numberIn(security, "runAsUser"),
      group: numberIn(security, "runAsGroup"),
      groups: typeof group === "number" ? [group] : [],
      readOnly: security["readOnlyRootFilesystem"] === true,
      hosts: this.#hosts(),
      mounts: this.#mounts,
    });
  }

  #hosts(): string[] {
    const aliases = (this.#pod.spec["hostAliases"] ?? []) as readonly { ip: string; hostnames: readonly string[] }[];
    return [...LOOPBACK, ...this.#node.hosts, ...aliases.map(({ ip, hostnames }) => `${ip} ${hostnames.join(" ")}`)];
  }

  #makeMounts(): Mount[] {
    const volumes = join(this.#folder, "volumes");
    mkdirSync(volumes, { recursive: true });
    const { spec } = this.#pod;
    const account = spec.automountServiceAccountToken ? [ACCOUNT_VOLUME] : [];
    writeVolumes({ ...spec, volumes: [...(spec.volumes ?? []), ...account] }, this.#sources(), volumes);
    const mounts: VolumeMount[] = [
      ...(this.#container.volumeMounts ?? []),
      ...account.map(({ name }) => ({ name, mountPath: ACCOUNT, readOnly: true })),
    ];
    return mounts.map(({ name, mountPath, subPath = "", readOnly = false }) => ({
      from: join(volumes, name, subPath),
      at: mountPath,
      readOnly,
    }));
  }

  #sources(): Sources {
    const { sources, rootCaFile } = this.#node;
    return {
      ...sources,
      keys: (kind, name, wanted) =>
        name === ROOT_CA ? { "ca.crt": readFileSync(rootCaFile, "utf8") } : sources.keys(kind, name, wanted),
    };
  }

  #variables(): Record<string, string> {
    const own = (this.#container.env ?? []).map(({ name, value, valueFrom = {} }) => {
      const { fieldRef, resourceFieldRef, secretKeyRef, configMapKeyRef } = valueFrom;
      if (fieldRef) return [name, this.#field(fieldRef.fieldPath)];
      if (resourceFieldRef) return [name, this.#resource(resourceFieldRef.resource)];
      if (secretKeyRef) return [name, this.#key("Secret", secretKeyRef)];
      if (configMapKeyRef) return [name, this.#key("ConfigMap", configMapKeyRef)];
      return [name, value ?? ""];
    });
    return { PATH: SEARCH_PATH, NODE_ENV: "production", ...this.#node.environment, ...Object.fromEntries(own) };
  }

  #field(path: string): string {
    const fields: Readonly<Record<string, string>> = {
      "metadata.name": `${this.#pod.owner.metadata.name}-0`,
      "metadata.namespace": this.#pod.owner.metadata.namespace ?? "default",
      "spec.nodeName": this.#node.name,
      "status.podIP": this.#node.ip,
      "status.hostIP": this.#node.ip,
    };
    return fields[path] ?? fail(`the tests do not know the field ${path}`);
  }

  #resource(resource: string): string {
    const [, amount = "", unit = ""] = /^(\d+)(\w*)$/.exec(this.#limit(resource)) ?? [];
    return String(Number(amount) * (UNITS[unit] ?? fail(`the tests do not know the unit ${unit}`)));
  }

  #limit(resource: string): string {
    const [part = "", name = ""] = resource.split(".");
    const limits = this.#container.resources?.[part as "limits"];
    return limits?.[name] ?? fail(`${this.name} has no ${resource}`);
  }

  #key(kind: "Secret" | "ConfigMap", { name, key }: { readonly name: string; readonly key: string }): string {
    return this.#sources().keys(kind, name, [key])?.[key] ?? fail(`${kind} ${name} has no key ${key}`);
  }
}

const ACCOUNT_VOLUME = {
  name: "kube-api-access",
  projected: {
    sources: [
      { serviceAccountToken: { path: "token" } },
      { configMap: { name: ROOT_CA, items: [{ key: "ca.crt", path: "ca.crt" }] } },
    ],
  },
};

function numberIn(security: Readonly<Record<string, unknown>>, field: string): number {
  const value = security[field];
  return typeof value === "number" ? value : fail(`${field} is not said`);
}

function fail(reason: string): never {
  throw new Error(reason);
}
