import type { z } from "zod";
import { formatSize, parseSize } from "../../shared/config/values.ts";
import type { PlainValue } from "../../shared/documents/yaml-documents.ts";
import { parsePattern } from "../../shared/tls/identity.ts";
import type { InnerTlsRule } from "./cluster.ts";
import { parseServerName } from "./names.ts";
import { list, made, orIssue, section, text } from "./schema-parts.ts";
import { SourceCidrs } from "./source-cidrs.ts";
import { TargetRules } from "./targets.ts";
import { tokenDocument } from "./token-document.ts";

const side = {
  sni: list(made(parseServerName))
    .transform((names) => [...new Set(names)])
    .default([]),
  cert: text().optional(),
  key: text().optional(),
  ca: text().optional(),
  crl: text().optional(),
  identities: list(made(parsePattern)).default([]),
  token: tokenDocument.optional(),
  sourceCIDRs: list(text())
    .min(1, "is empty, so nobody could come: name networks, or leave the key out")
    .transform(orIssue((texts) => new SourceCidrs(texts)))
    .optional(),
};

const agents = section({ ...side, maxAgents: made(count).optional(), innerTls: made(innerTlsRule).optional() });
const callers = section({ ...side, uds: text().optional() });

const limits = section({
  streams: made(count).optional(),
  pendingConnects: made(count).optional(),
  connectsPerSecond: made(count).optional(),
  bytesPerSecond: made(bytes).optional(),
  handshakesPerSecond: made(count).optional(),
  memory: made(memory).optional(),
});

/** The schema of a document; its scalars are text, whatever YAML makes of them. */
export const clusterDocument = section({
  name: made(clusterName),
  agents: agents.optional().transform(orIssue((given) => withPair(given ?? agents.parse({})))),
  callers: callers.optional().transform(orIssue((given) => withPair(given ?? callers.parse({})))),
  allow: rules(),
  deny: rules(),
  limits: limits.default({}),
  suspended: made(yesOrNo).default(false),
}).transform(({ allow, deny, ...rest }) => ({ ...rest, targets: new TargetRules(allow, deny) }));

/** One cluster as its YAML document says it; paths are as they were written. */
export type ClusterDocument = z.output<typeof clusterDocument>;

/** Absent: no bound but those of the server's flags. */
export type Limits = Readonly<z.output<typeof limits>>;

/** The document of a cluster, or its faults as sentences that begin with the path of a key. */
export function parseDocument(value: PlainValue): { document: ClusterDocument } | { faults: string[] } {
  const result = clusterDocument.safeParse(value);
  if (result.success) return { document: result.data };
  return { faults: result.error.issues.map(({ path, message }) => `${shownPath(path)}${message}.`) };
}

function shownPath(path: readonly PropertyKey[]): string {
  if (path.length === 0) return "the document ";
  const steps = path.map((step) => (typeof step === "number" ? `[${step}]` : `.${String(step)}`));
  return `${steps.join("").slice(1)} `;
}

function clusterName(value: string): string {
  if (/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(value)) return value;
  throw new Error('needs a name like a DNS label: at most 63 of a-z, 0-9 and "-" inside, such as blue-1');
}

function count(value: string): number {
  if (/^[1-9][0-9]{0,8}$/.test(value)) return Number(value);
  throw new Error("needs a whole number from 1 to 999999999; to let nobody in write suspended: true");
}

/** No less than one read of a socket: a bucket that holds less could never let it pass. */
const LEAST_BYTES = 65_536;

function bytes(value: string): number {
  const size = parseSize(value);
  if (size < LEAST_BYTES) throw new Error(`needs at least ${formatSize(LEAST_BYTES)}`);
  return size;
}

/** No less than a few connections need to move at all. */
const LEAST_MEMORY = 1024 * 1024;

function memory(value: string): number {
  const size = parseSize(value);
  if (size < LEAST_MEMORY) throw new Error(`needs at least ${formatSize(LEAST_MEMORY)}`);
  return size;
}

function innerTlsRule(value: string): InnerTlsRule {
  if (value === "never" || value === "auto" || value === "always") return value;
  throw new Error("needs never, auto or always");
}

function yesOrNo(value: string): boolean {
  if (value === "true" || value === "false") return value === "true";
  throw new Error("needs true or false");
}

/** Each rule is tried alone, so that the path of a fault leads to it. */
function rules() {
  return list(
    made((rule) => {
      new TargetRules([rule], []);
      return rule;
    }),
  ).default([]);
}

function withPair<S extends { cert?: string | undefined; key?: string | undefined }>(given: S): S {
  if ((given.cert === undefined) === (given.key === undefined)) return given;
  const [there, missing] = given.cert === undefined ? ["key", "cert"] : ["cert", "key"];
  throw new Error(`has ${there} without ${missing}: give both, or neither to use the server's own`);
}
