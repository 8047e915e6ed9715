import type { ClusterRuntime } from "./cluster-runtime.ts";

export type Clients = "agents" | "callers";

/** Where a certificate, its key and a CA come from when the document has none. */
const FLAGS = {
  agents: { cert: "--cluster-cert", key: "--cluster-key", ca: "--cluster-ca-cert" },
  callers: { cert: "--server-cert", key: "--server-key", ca: "--server-ca-cert" },
} as const;

/** The keys that a side of a document lacks, and the flags that could stand in for them. */
export function missingSentence(
  clients: Clients,
  lacks: { readonly certificate: boolean; readonly ca: boolean },
): string | undefined {
  const keys = [...(lacks.certificate ? (["cert", "key"] as const) : []), ...(lacks.ca ? (["ca"] as const) : [])];
  if (keys.length === 0) return undefined;
  const [verb, has] = keys.length === 1 ? ["is", "has one"] : ["are", "have them"];
  const missing = inWords(keys.map((key) => `${clients}.${key}`));
  return `${missing} ${verb} missing: neither the document nor ${inWords(keys.map((key) => FLAGS[clients][key]))} ${has}`;
}

/** The warning about a side of a cluster to which nobody can come over TLS. */
export function missingWarning(clients: Clients): (served: ClusterRuntime) => string | undefined {
  return (served) => {
    const { missing, mayDoWithoutTls } = served[clients];
    if (missing === undefined) return undefined;
    const { name, file } = served.cluster;
    const only = mayDoWithoutTls ? ", so its agents can come by --agent-insecure-port only" : "";
    return `${file}: cluster "${name}": ${missing}${only}`;
  };
}

function inWords(words: readonly string[]): string {
  return words.length === 1 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
