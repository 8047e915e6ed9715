import { isIP } from "node:net";
import { RecentMap } from "../shared/basics/collections.ts";
import { SharedWork, untilAborted } from "../shared/basics/promises.ts";
import { jsonOf } from "../shared/basics/text.ts";
import { kubeconfig } from "../shared/kubernetes/access.ts";
import { KubeCollection } from "../shared/kubernetes/kube-collection.ts";

const SERVICES = { group: "", plural: "services", singular: "service" } as const;
/** How long the address of a Service is kept, ms. It changes only when the Service is made again. */
const KEPT_MS = 30_000;
const MAX_SERVICES = 1_000;

/** Addresses of Services, from the API server of the hosted cluster. */
export class Services {
  readonly #path: string;
  readonly #known = new RecentMap<string, { readonly address: string | undefined; readonly until: number }>(
    MAX_SERVICES,
  );
  /** Dials of one Service at the same time share a request. */
  readonly #asked = new SharedWork<string | undefined>();

  constructor(kubeconfigPath: string) {
    this.#path = kubeconfigPath;
  }

  /** The ClusterIP; `undefined` if there is no such Service, or it has none. Throws a `KubeFailure`. */
  async find(name: string, namespace: string, signal: AbortSignal): Promise<string | undefined> {
    const key = `${namespace}/${name}`;
    const known = this.#known.get(key);
    if (known !== undefined && known.until > performance.now()) return known.address;
    return this.#asked.join(
      key,
      (over) => this.#ask(name, namespace, over),
      (found) => untilAborted(found, signal),
    );
  }

  async #ask(name: string, namespace: string, signal: AbortSignal): Promise<string | undefined> {
    const services = new KubeCollection(kubeconfig(this.#path), SERVICES, namespace);
    try {
      const answer = await services.ask("get", { name, signal });
      if (answer.status !== 404) services.requireSuccess(answer, "get", name);
      const address = clusterIpIn(answer.text);
      this.#known.set(`${namespace}/${name}`, { address, until: performance.now() + KEPT_MS });
      return address;
    } finally {
      services.close();
    }
  }
}

function clusterIpIn(text: string): string | undefined {
  const service = jsonOf(text) as { readonly spec?: { readonly clusterIP?: unknown } } | undefined;
  const address = service?.spec?.clusterIP;
  return typeof address === "string" && isIP(address) !== 0 ? address : undefined; // "None" of a headless one
}
