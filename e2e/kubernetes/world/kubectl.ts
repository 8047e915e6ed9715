import { dirname, join } from "node:path";
import type { Program } from "../../harness/program.ts";
import type { KubeObject } from "../../helm/harness/objects.ts";
import type { Namespace } from "./namespace.ts";
import type { Finished, RunOptions } from "./run.ts";

/** kubectl with the rights of an administrator, run in the control plane's namespace. */
export class Kubectl {
  readonly #namespace: Namespace;
  readonly #binary: string;
  readonly #kubeconfig: string;
  readonly #signal: AbortSignal | undefined;

  constructor(namespace: Namespace, binary: string, kubeconfig: string, signal?: AbortSignal) {
    this.#namespace = namespace;
    this.#binary = binary;
    this.#kubeconfig = kubeconfig;
    this.#signal = signal;
  }

  /** The same, and what it runs ends with the signal. */
  until(signal: AbortSignal): Kubectl {
    return new Kubectl(this.#namespace, this.#binary, this.#kubeconfig, signal);
  }

  run(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
    return this.#namespace.run([this.#binary, ...args], this.#bound(options));
  }

  /** The same, and an exit code other than 0 is an error with everything it printed. */
  must(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
    return this.#namespace.must([this.#binary, ...args], this.#bound(options));
  }

  /**
   * A line for a shell, whose programs read the kubeconfig; kubectl and those in `folders` are found by their names.
   */
  shell(line: string, folders: readonly string[], options: RunOptions = {}): Promise<Finished> {
    const path = [dirname(this.#binary), ...folders, process.env["PATH"] ?? ""].join(":");
    return this.#namespace.must(["sh", "-ec", line], this.#bound({ ...options, env: { PATH: path } }));
  }

  /** Objects as the API server has them now. */
  async get(...args: readonly string[]): Promise<KubeObject[]> {
    const { stdout } = await this.must(["get", ...args, "-o", "json"]);
    const answer = JSON.parse(stdout) as KubeObject & { readonly items?: readonly KubeObject[] };
    return [...(answer.items ?? [answer])];
  }

  /** For commands that stay, such as port-forward. */
  start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Program {
    return this.#namespace.start(`kubectl ${args[0]}`, [this.#binary, ...args], { ...this.#environment, ...env });
  }

  /** Makes the objects, and leaves those that are there. */
  async create(objects: readonly object[]): Promise<void> {
    const list = JSON.stringify({ apiVersion: "v1", kind: "List", items: objects });
    await this.must(["apply", "-f", "-", "--validate=false"], { stdin: list });
  }

  /** Shows an object to admission, as for its creation, and creates nothing. */
  dryRun(object: object, more: readonly string[] = []): Promise<Finished> {
    return this.run(["create", "--dry-run=server", "-f", "-", ...more], { stdin: JSON.stringify(object) });
  }

  #bound({ env, ...options }: RunOptions): RunOptions {
    const signal = options.signal ?? this.#signal;
    return { ...options, env: { ...this.#environment, ...env }, ...(signal === undefined ? {} : { signal }) };
  }

  get #environment(): Record<string, string> {
    // Its cache of discovery goes into HOME.
    return { KUBECONFIG: this.#kubeconfig, HOME: join(dirname(this.#kubeconfig), "home") };
  }
}

/** Arguments that run a command in the main container of a pod. */
export function inMain(pod: string, command: readonly string[], ...options: readonly string[]): string[] {
  return ["exec", ...options, pod, "-c", "main", "--", ...command];
}
