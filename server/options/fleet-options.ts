import { isIPv6 } from "node:net";
import { isDeepStrictEqual } from "node:util";
import { parseTarget } from "../../shared/address/target.ts";
import { checkPair } from "../../shared/config/common-options.ts";
import { type Draft, option, type Rows, section } from "../../shared/config/options.ts";
import { parsePattern } from "../../shared/tls/identity.ts";

/** The options of a fleet of servers. Without `--directory` none of them has an effect. */
export const peerRows = section("Other servers", {
  directory: option.list(
    [],
    "NATS servers that say which server holds which cluster, such as nats://nats-1:4222 or tls://nats-2:4222. A CONNECT whose cluster has no agent here then goes to a server that has one. Empty: this server knows no others.",
    { item: natsUrl },
  ),
  directoryCredentials: option.file(
    "",
    "Credentials for NATS: a .creds file, or one line USER:PASSWORD. Read again at each connection.",
  ),
  directoryCaCert: option.file("", "CA certificates (PEM) of the NATS servers. Empty: those of the system."),
  directoryCert: option.file("", "Certificate (PEM) shown to NATS servers."),
  directoryKey: option.file("", "Private key (PEM) of --directory-cert."),
  peerPort: option.port(8096, "TCP port for other servers, mutual TLS.", {
    defaultText: "8096 with --directory, else off",
  }),
  peerBindAddress: option.address("", "Address of the port for other servers. Empty: all interfaces."),
  peerAddress: option.string(
    "",
    "Address at which other servers reach this one: HOST, or HOST:PORT if the port is not --peer-port. In a pod, the pod's own IP address.",
  ),
  peerCert: option.file("", "Certificate (PEM) shown to other servers. It must be for both server and client."),
  peerKey: option.file("", "Private key (PEM) of --peer-cert."),
  peerCaCert: option.file("", "CA certificates (PEM) that other servers' certificates must come from."),
  peerIdentities: option.list(
    [],
    "Certificates of --peer-ca-cert that are those of servers, patterns as in --caller-identities. Others, such as an agent's, are refused.",
    { separator: ";", item: identityPattern },
  ),
});

/** The id of a CONNECT begins with the server's, and agents take one of 128 characters at most. */
const MAX_SERVER_ID = 100;

/** The row that another option has to agree with. */
interface IdRow extends Rows {
  readonly serverId: Rows[string];
}

/** Checks the options of a fleet together. Without a directory the port is off. */
export function resolvePeers(draft: Draft<typeof peerRows & IdRow>): void {
  const { values } = draft;
  const { directory, peerAddress, peerCert, peerKey, peerCaCert, peerIdentities } = values;
  if (directory.length === 0) {
    const texts = [values.peerBindAddress, peerAddress, peerCert, peerKey, peerCaCert, ...peerIdentities];
    const asksForPort = draft.given("peerPort") && values.peerPort !== 0;
    values.peerPort = 0;
    if (asksForPort || texts.some((value) => value !== ""))
      draft.warn("The options of other servers (--peer-...) have no effect without --directory.");
    return;
  }
  if (values.peerPort === 0) draft.problem("--directory needs --peer-port: other servers bring their CONNECTs there.");
  if (String(values.serverId).length > MAX_SERVER_ID) {
    draft.problem(`With --directory, --server-id has at most ${MAX_SERVER_ID} characters: give it a shorter one.`);
  }
  const objection = objectionTo(peerAddress);
  if (objection !== undefined) draft.problem(objection);
  if (peerCert === "" || peerKey === "" || peerCaCert === "") {
    draft.problem("Servers know each other by certificates: give --peer-cert, --peer-key and --peer-ca-cert.");
  }
  if (peerIdentities.length === 0) {
    draft.problem(
      "--directory needs --peer-identities: the role in the certificates of servers, such as O=culvert-servers.",
    );
  }
  checkPair(draft, ["--directory-cert", values.directoryCert], ["--directory-key", values.directoryKey]);
}

/** The fault of `--peer-address`, which every other server dials. */
function objectionTo(peerAddress: string): string | undefined {
  if (peerAddress === "") {
    return "--directory needs --peer-address: where other servers reach this one, such as the address of its pod.";
  }
  const isBare = isIPv6(peerAddress);
  if (!isBare && !/^(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?$/.test(peerAddress)) {
    return "--peer-address must be HOST or HOST:PORT, an IPv6 address with a port in brackets.";
  }
  const hasPort = !isBare && /:\d+$/.test(peerAddress);
  const bracketed = isBare ? `[${peerAddress}]` : peerAddress;
  let host: string;
  try {
    ({ host } = parseTarget(hasPort ? peerAddress : `${bracketed}:1`));
  } catch (error) {
    return `--peer-address ${peerAddress} can be dialled by nobody: ${(error as Error).message}.`;
  }
  // An address to listen on is no address to dial: each of the others would reach itself there.
  if (/^(?:0\.0\.0\.0|[:0]+)$/.test(host)) {
    return `--peer-address ${peerAddress} stands for all addresses of a host: name the one where other servers reach this one.`;
  }
  return undefined;
}

/** The text of a pattern, which the part of the server that uses it parses again. */
export function identityPattern(text: string): string {
  try {
    parsePattern(text);
  } catch (error) {
    throw new Error(`does not take this: ${(error as Error).message}`, { cause: error });
  }
  return text;
}

function natsUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^(?:nats|tls):$/.test(url.protocol) || url.hostname === "") {
    throw new Error("needs URLs such as nats://nats-1:4222 or tls://nats-1:4222");
  }
  if (url.username !== "" || url.password !== "") {
    throw new Error("must not hold a password: write it into the file of --directory-credentials");
  }
  return text;
}

// ── how many servers there are ──────────────────────────────────────────────────────────────────────────────────────

/**
 * How this server knows how many servers there are. It announces the number to agents, which keep tunnels to this many
 * servers.
 */
export const replicas = section("Several servers", {
  serverCount: option.integer(
    0,
    "How many servers agents of the same clusters reach, this one included. The number is announced to agents, which keep tunnels to this many of them (--uplinks). With one of the two options below, the number until the API has answered. 0: not known.",
    { konnectivity: "--server-count", min: 0, max: 1_000, defaultText: "not known" },
  ),
  serverCountService: option.string(
    "",
    "Count the servers by a Service of this pod's own cluster, namespace/name: as many as its EndpointSlices have ready endpoints. The pod's account needs get, list and watch on endpointslices (discovery.k8s.io). Empty: they are not counted this way.",
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

const LEASE_DEFAULTS = [replicas.leaseNamespace.default, replicas.leaseLabel.default];

/** Checks the options of this section together. */
export function checkReplicas(draft: Draft<typeof replicas>): void {
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
  const isDefault = isDeepStrictEqual([leaseNamespace, leaseLabel], LEASE_DEFAULTS);
  if (!enableLeaseController && !isDefault) {
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
