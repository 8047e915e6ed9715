import { setTimeout as sleep } from "node:timers/promises";
import { PORTS } from "./addresses.ts";
import { judgedBy } from "./objects.ts";
import type { World } from "./world.ts";

const EVERY_MS = 200;
const URL = `https://127.0.0.1:${PORTS.kubeApiserver}/api/v1/namespaces/default/configmaps?dryRun=All`;

/** Has kube-apiserver call a webhook at the node every 200 ms, whether or not the call before has been answered. */
export class SteadyWebhook implements AsyncDisposable {
  /** Calls that were answered. */
  count = 0;
  /** The answers to calls that failed, in order. */
  readonly failures: string[] = [];
  readonly #world: World;
  readonly #pending = new Set<Promise<void>>();
  readonly #timer: NodeJS.Timeout;
  #isHeld = false;

  constructor(world: World) {
    this.#world = world;
    this.#timer = setInterval(() => this.#begin(), EVERY_MS);
  }

  /** Resolves with the next call that has been answered, well or not. */
  async next(): Promise<void> {
    const before = this.count;
    while (this.count === before) await Promise.race([...this.#pending, sleep(EVERY_MS)]);
  }

  /** Does something while no call is under way: the next one begins afterwards. */
  async betweenCalls(act: () => Promise<void>): Promise<void> {
    this.#isHeld = true;
    await Promise.all(this.#pending);
    await act();
    this.#isHeld = false;
  }

  #begin(): void {
    if (this.#isHeld) return;
    const call = this.#call();
    this.#pending.add(call);
    void call.finally(() => this.#pending.delete(call));
  }

  /** By curl: kubectl takes a tenth of a second to begin. */
  async #call(): Promise<void> {
    const { kubeApiserver, admin } = this.#world.pki;
    const { code, stdout, stderr } = await this.#world.network.controlPlane.run([
      ...["curl", "-sS", "--fail-with-body", "-m", "30"],
      ...["--cacert", kubeApiserver.ca, "--cert", admin.cert, "--key", admin.key],
      ...["-H", "content-type: application/json", "-d", JSON.stringify(judgedBy("stand-in")), URL],
    ]);
    this.count++;
    if (code !== 0) this.failures.push(`${stderr}${stdout}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#pending);
  }
}
