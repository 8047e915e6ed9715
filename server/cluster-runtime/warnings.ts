import type { CrlFile, WatchedCrl } from "../../shared/tls/crl-file.ts";
import type { RevocationList } from "../../shared/tls/revocation-list.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";

/** So long before its end a CRL should have been followed by the next one, ms; of one that is short, a quarter of its time. */
const NOTICE_MS = 86_400_000;

/** What is to be done about the CRLs of a file: somebody is refused because of one, or soon will be, or one is of no use. */
export function crlWarnings(
  by: string,
  { lists }: CrlFile,
  isKnown: (list: RevocationList) => boolean,
  now: Date,
): string[] {
  return lists.flatMap((list, index) => {
    const fault = ageFault(list, now) ?? (isKnown(list) ? undefined : UNKNOWN);
    return fault === undefined ? [] : `CRL ${index + 1} of ${by} ${fault}`;
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

const SIDES = ["agents", "callers"] as const;

/** Those of one cluster's document. */
export function documentCrlWarnings(served: ClusterRuntime, now = new Date()): string[] {
  const { name, file: document } = served.cluster;
  return SIDES.flatMap((side) => {
    const crl = served.cluster[side].crl;
    if (crl === undefined) return [];
    const { trust } = served[side];
    return crlWarnings(`${side}.crl of cluster "${name}" (${document})`, crl, (list) => trust.knows(list), now);
  });
}

/** Those of `--client-crl-file`, which is for every side that has no CRLs of its own. */
export function flagCrlWarnings(crl: WatchedCrl, served: Iterable<ClusterRuntime>, now = new Date()): string[] {
  const all = [...served];
  const isKnown = (list: RevocationList) =>
    all.some((one) => SIDES.some((side) => one.cluster[side].crl === undefined && one[side].trust.knows(list)));
  const problem = crl.problem === undefined ? [] : [`--client-crl-file: ${crl.problem}; the old one stays in use`];
  return [...problem, ...crlWarnings(`--client-crl-file (${crl.path})`, crl.content, isKnown, now)];
}
