import { authoritiesOf } from "../../shared/tls/authorities.ts";
import type { CrlFile, RevocationList, WatchedCrl } from "../../shared/tls/revocation-list.ts";
import { SIDES } from "../clusters/cluster.ts";
import { behindDefault } from "../clusters/routing-rules.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";
import { missingWarning } from "./virtual-host.ts";

type Warning = (runtime: ClusterRuntime) => string | undefined;

/** A warning names this many clusters; the rest is counted, because a thousand may be made from one template. */
const MAX_NAMED = 3;

/** One warning about all clusters together. */
export function warningsOf(clusters: Iterable<ClusterRuntime>, warning: Warning): string[] {
  const warnings = [...clusters].flatMap((runtime) => warning(runtime) ?? []);
  const more = warnings.length - MAX_NAMED;
  return more > 0 ? [...warnings.slice(0, MAX_NAMED), `the same is true of ${more} more clusters`] : warnings;
}

/**
 * Warns of a cluster whose two CAs are the same, or have signed each other, while a list of identities is missing: then
 * only Konnectivity's names keep an agent's certificate from opening the callers' port.
 */
export function sharedCaWarning({ cluster, isOfFlags, callers, agents }: ClusterRuntime): string | undefined {
  const missing = [
    ...(callers.identities.length === 0 ? [isOfFlags ? "--caller-identities" : "callers.identities"] : []),
    ...(agents.identities.length === 0 ? [isOfFlags ? "--agent-identities" : "agents.identities"] : []),
  ];
  if (missing.length === 0 || !shareAuthority(callers.ca, agents.ca)) return undefined;
  const whose = isOfFlags ? "" : ` of cluster "${cluster.name}" (${cluster.file})`;
  return `callers and agents${whose} come from the same CA: give ${missing.join(" and ")}, or a certificate of one role may open the other's port`;
}

function shareAuthority(one: string | undefined, other: string | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  return authoritiesOf(one).some((authority) => authoritiesOf(other).some((its) => its.overlaps(authority)));
}

/**
 * Warns of a cluster whose document accepts agents by token only although `--cluster-ca-cert` is given: agents with a
 * certificate of that CA are refused there.
 */
function tokenOnlyWarning({ cluster, agents }: ClusterRuntime): string | undefined {
  if (!agents.ignoresFlagCa) return undefined;
  return `agents of cluster "${cluster.name}" (${cluster.file}) come with a token only: --cluster-ca-cert does not count where a document has agents.token and neither agents.identities nor agents.ca`;
}

/** Warns of a cluster that denies addresses but allows every name, because a name may resolve to a denied address. */
function namesBypassDenyWarning({ cluster }: ClusterRuntime): string | undefined {
  if (!cluster.targets.namesBypassDeny) return undefined;
  return `${cluster.file}: cluster "${cluster.name}": deny names addresses and there is no allow, so a name that resolves to one of them passes: the agents resolve it. Add allow, or give the agents --deny-target`;
}

/**
 * Warns of a cluster of a fleet whose agents claim targets, but not strictly: a server that has any agent for a target
 * asks no other server, even if an agent there claims it. Strict identifiers hold on all servers where a document says
 * what is claimed; without one each server knows what its own agents have said, and no more.
 */
export function localClaimsWarning({ cluster, tunnels, isOfFlags, hasDirectory }: ClusterRuntime): string | undefined {
  const { strategies, strict, claims } = tunnels.rules;
  if (!hasDirectory || !strategies.some((one) => one === "destHost" || one === "cidr")) return undefined;
  if (strict) return claims === undefined ? CLAIMS_OF_HELLOS : undefined;
  if (isOfFlags) return LOCAL_CLAIMS_OF_FLAGS;
  return `with --directory what agents of cluster "${cluster.name}" (${cluster.file}) claim counts only among agents of the server that a caller comes to: set agents.strictIdentifiers if no others may be asked`;
}

const LOCAL_CLAIMS_OF_FLAGS =
  "with --directory what agents claim counts only among agents of the server that a caller comes to: set both agents.claims and agents.strictIdentifiers in a document if no others may be asked";

const CLAIMS_OF_HELLOS =
  "with --directory, --strict-identifiers holds for what agents of the same server have claimed: write a document with agents.claims, which hold at every server";

/** Warns of a document with strategies that are never reached. */
export function unreachedStrategiesWarning({ cluster }: ClusterRuntime): string | undefined {
  const unreached = behindDefault(cluster.agents.strategies ?? []).join(", ");
  if (unreached === "") return undefined;
  return `${cluster.file}: cluster "${cluster.name}": agents.strategies: default takes any agent, so ${unreached} after it has no effect: name default last`;
}

/** All warnings about one cluster that are logged when they begin to apply. */
export const WARNINGS: readonly Warning[] = [
  sharedCaWarning,
  tokenOnlyWarning,
  namesBypassDenyWarning,
  localClaimsWarning,
  unreachedStrategiesWarning,
  ({ cluster, agents }) => missingWarning(cluster, agents),
  ({ cluster, callers }) => missingWarning(cluster, callers),
];

// ── revocation lists ────────────────────────────────────────────────────────────────────────────────────────────────

/** A CRL should be replaced this long before its end, ms; one of a short life in the last quarter of it. */
const NOTICE_MS = 86_400_000;

/** Warns of the CRLs of a file that have expired, expire soon, or belong to no CA in use. */
function crlWarnings(file: string, { lists }: CrlFile, isKnown: (list: RevocationList) => boolean): string[] {
  const now = new Date();
  return lists.flatMap((list, index) => {
    const fault = ageFault(list, now) ?? (isKnown(list) ? undefined : UNKNOWN);
    return fault === undefined ? [] : `CRL ${index + 1} of ${file} ${fault}`;
  });
}

const UNKNOWN = "is signed by none of the CAs there: add the CA that has signed it, or it may revoke nothing";

function ageFault({ thisUpdate, nextUpdate }: RevocationList, now: Date): string | undefined {
  if (nextUpdate === undefined) return undefined;
  const end = nextUpdate.toISOString().replace(".000", "");
  if (nextUpdate <= now) return `expired on ${end}: certificates of its CA are refused until there is a new one`;
  const noticeMs = Math.min(NOTICE_MS, (nextUpdate.getTime() - thisUpdate.getTime()) / 4);
  if (nextUpdate.getTime() - now.getTime() > noticeMs) return undefined;
  return `expires on ${end}, and certificates of its CA are refused from then on: replace it`;
}

/** Warnings about the CRLs that the document of a cluster names. */
export function documentCrlWarnings(runtime: ClusterRuntime): string[] {
  const { name, file } = runtime.cluster;
  return SIDES.flatMap((side) => {
    const crl = runtime.cluster[side].crl;
    if (crl === undefined) return [];
    const { trust } = runtime[side];
    return crlWarnings(`${side}.crl of cluster "${name}" (${file})`, crl, (list) => trust.knows(list));
  });
}

/**
 * Warnings about `--client-crl-file`, which applies to every side without CRLs of its own. `isOfOthers`: whether a list
 * is of the CA of other servers.
 */
export function flagCrlWarnings(
  crl: WatchedCrl,
  clusters: Iterable<ClusterRuntime>,
  isOfOthers: (list: RevocationList) => boolean,
): string[] {
  const all = [...clusters];
  const isKnown = (list: RevocationList) =>
    isOfOthers(list) ||
    all.some((one) => SIDES.some((side) => one.cluster[side].crl === undefined && one[side].trust.knows(list)));
  const problem = crl.problem === undefined ? [] : [`--client-crl-file: ${crl.problem}; the old one stays in use`];
  return [...problem, ...crlWarnings(`--client-crl-file (${crl.path})`, crl.content, isKnown)];
}
