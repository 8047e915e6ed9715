import { type Draft, option, type Rows, section } from "../../shared/config/options.ts";

/**
 * How this server knows how many servers there are. It announces the number to agents, which keep tunnels to so many.
 */
export const replicas = section("Several servers", {
  serverCount: option.integer(
    0,
    "How many servers agents of the same clusters reach, this one included. The number is announced to agents, which keep tunnels to so many of them (--uplinks). With one of the two options below, the number until the API has answered. 0: not known.",
    { konnectivity: "--server-count", min: 0, max: 1_000, defaultText: "not known" },
  ),
  serverCountService: option.string(
    "",
    "Count the servers by a Service of this pod's own cluster, namespace/name: as many as its EndpointSlices have ready endpoints. The pod's account needs get, list and watch on endpointslices (discovery.k8s.io). Empty: not this way.",
  ),
  enableLeaseController: option.boolean(
    false,
    "Count the servers by Leases: each server writes one, renews it every 15s, and deletes those that have expired. The API is that of --kubeconfig, or this pod's own. It needs get, list, watch, create, update and delete on leases (coordination.k8s.io).",
    { konnectivity: "--enable-lease-controller" },
  ),
  leaseNamespace: option.string("kube-system", "Namespace of the Leases.", { konnectivity: "--lease-namespace" }),
  leaseLabel: option.list(
    ["k8s-app=culvert-server"],
    "Labels of the Leases, by which servers that belong together find each other. Not those of Konnectivity's servers, whose agents would look for these servers, too.",
    { konnectivity: "--lease-label", item: label },
  ),
});

/** The rows that another option has to agree with. */
interface Others extends Rows {
  readonly kubeconfig: Rows[string];
}

/** Checks the options of this section together. */
export function checkReplicas(draft: Draft<typeof replicas & Others>): void {
  const { serverCountService, enableLeaseController, leaseNamespace, leaseLabel } = draft.values;
  if (serverCountService !== "" && !SERVICE.test(serverCountService)) {
    draft.problem(
      "--server-count-service needs the namespace and name of a Service, such as culvert/culvert-server-agents.",
    );
  }
  if (serverCountService !== "" && enableLeaseController) {
    draft.problem(
      "--server-count-service and --enable-lease-controller both count the servers: leave one of them out.",
    );
  }
  if (!NAME.test(leaseNamespace)) draft.problem("--lease-namespace is no name of a namespace.");
  if (enableLeaseController && leaseLabel.length === 0) {
    draft.problem("--lease-label is empty: without a label, the leases of everything else would be counted.");
  }
  if (!enableLeaseController && (draft.given("leaseNamespace") || draft.given("leaseLabel"))) {
    draft.warn("--lease-namespace and --lease-label have no effect without --enable-lease-controller.");
  }
}

/** RFC 1123, as Kubernetes has it for namespaces and Services. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const SERVICE = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
/** A label of Kubernetes with its value. */
const LABEL =
  /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?$/;

function label(text: string): string {
  if (LABEL.test(text)) return text;
  throw new Error(`needs labels such as k8s-app=culvert-server, not ${JSON.stringify(text.slice(0, 80))}`);
}
