/** What CoreDNS serves unless configured otherwise. */
const CLUSTER_DOMAIN = "cluster.local";
/** `pod.service.namespace` is the longest name that is a Service's, or of a pod behind one, without its domain. */
const MOST_LABELS = 3;

/**
 * The names under which the host that is asked for may be found. The search path of a pod appends `svc.DOMAIN` and
 * `DOMAIN` to a name with few dots (Kubernetes, "DNS for Services and Pods"), so `web.default`, `web.default.svc` and
 * `web.default.svc.cluster.local` are one. A domain other than `cluster.local` is taken off, and not appended. `host` is
 * in lower case and without a final dot.
 */
export function spellingsOf(host: string): string[] {
  const service = withoutDomain(host);
  if (service.split(".").length > MOST_LABELS) return [host];
  const domains = ["svc", `svc.${CLUSTER_DOMAIN}`, CLUSTER_DOMAIN];
  return [host, service, ...domains.map((domain) => `${service}.${domain}`)];
}

function withoutDomain(host: string): string {
  const labels = host.split(".");
  const svc = labels.lastIndexOf("svc");
  if (svc > 0) return labels.slice(0, svc).join(".");
  return host.endsWith(`.${CLUSTER_DOMAIN}`) ? host.slice(0, -CLUSTER_DOMAIN.length - 1) : host;
}
