import { isIP, isIPv4 } from "node:net";
import { parseTarget, type Target } from "../shared/address/target.ts";
import { NAMES } from "../shared/names/lookup.ts";
import { ClusterDns, type OpenNameServer } from "./cluster-dns.ts";
import { Refusal, serverAway } from "./refusal.ts";
import type { Services } from "./services.ts";

export interface ResolverOptions {
  /** A name server of the cluster, `host:port`, or "". */
  readonly clusterDns: string;
  readonly kubeconfig: string;
  readonly resolveFromGuestClusterDns: boolean;
  readonly resolveFromManagementClusterDns: boolean;
  readonly disableResolver: boolean;
  readonly preferIpv4: boolean;
}

/** The Service of OpenShift's name servers. */
const DNS_SERVICE = ["dns-default", "openshift-dns"] as const;
const DNS_PORT = 53;

/**
 * Finds the addresses of a name where that is not left to the agent: the ClusterIP of a Service by the cluster's API,
 * others by the cluster's name server, and by this machine's own where that has failed and it is asked for.
 */
export class Resolver {
  readonly #options: ResolverOptions;
  readonly #dns: ClusterDns;
  #services: Promise<Services> | undefined;

  constructor(options: ResolverOptions, open: OpenNameServer) {
    this.#options = options;
    this.#dns = new ClusterDns(open);
  }

  /**
   * At least one address, in the order in which they are tried; `undefined`: the agent resolves the name. Rejects with
   * a `Refusal`.
   */
  async find(host: string, signal: AbortSignal): Promise<readonly string[] | undefined> {
    if (isIP(host) !== 0 || this.#options.disableResolver) return undefined;
    const address = await this.#service(host, signal);
    if (address !== undefined) return [address];
    const { clusterDns, resolveFromGuestClusterDns, resolveFromManagementClusterDns } = this.#options;
    if (clusterDns === "" && !resolveFromGuestClusterDns) return undefined;
    try {
      return this.#preferred(await this.#dns.find(host, await this.#nameServer(signal), signal));
    } catch (error) {
      if (!resolveFromManagementClusterDns || signal.aborted) throw error;
      return this.#locally(host, error);
    }
  }

  async #service(host: string, signal: AbortSignal): Promise<string | undefined> {
    const asked = serviceNameOf(host);
    if (this.#options.kubeconfig === "" || asked === undefined) return undefined;
    return this.#find(asked[0], asked[1], signal);
  }

  async #nameServer(signal: AbortSignal): Promise<Target> {
    if (this.#options.clusterDns !== "") return parseTarget(this.#options.clusterDns);
    const host = await this.#find(...DNS_SERVICE, signal);
    if (host === undefined) throw serverAway(`the Service ${DNS_SERVICE.join(" of ")} has no address: --cluster-dns`);
    return { host, port: DNS_PORT };
  }

  async #find(name: string, namespace: string, signal: AbortSignal): Promise<string | undefined> {
    this.#services ??= import("./services.ts").then((module) => new module.Services(this.#options.kubeconfig));
    try {
      return await (await this.#services).find(name, namespace, signal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw new Refusal(502, "dns_error", (error as Error).message, { cause: error });
    }
  }

  /** Throws `failure`, of the cluster's name server, if this machine's knows nothing either. */
  async #locally(host: string, failure: unknown): Promise<readonly string[]> {
    try {
      return this.#preferred((await NAMES.find(host)).map(({ address }) => address));
    } catch {
      throw failure;
    }
  }

  #preferred(addresses: readonly string[]): readonly string[] {
    const ipv4 = this.#options.preferIpv4 ? addresses.filter((address) => isIPv4(address)) : [];
    return ipv4.length > 0 ? ipv4 : addresses;
  }
}

/** `name.namespace.svc`, with or without the cluster's domain. */
function serviceNameOf(host: string): readonly [name: string, namespace: string] | undefined {
  const [, name, namespace] = /^([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.|$)/i.exec(host) ?? [];
  return name === undefined || namespace === undefined ? undefined : [name, namespace];
}
