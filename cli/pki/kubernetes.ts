import { createPrivateKey, X509Certificate } from "node:crypto";
import { isIP, SocketAddress } from "node:net";
import * as z from "zod";
import { firstIssue, jsonOf, schemaMessage } from "../../shared/basics/text.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { inCluster, kubeconfig, type ReadAccess } from "../../shared/kubernetes/access.ts";
import { KubeCollection, KubeFailure } from "../../shared/kubernetes/kube-collection.ts";
import { Authority, type CertificateAndKey, type LeafOptions } from "../../shared/pki/certificates.ts";
import { parseAltNames } from "../../shared/tls/certificate-fields.ts";
import { checkName, PEER } from "./pki.ts";

export interface PkiKubernetesOptions {
  readonly namespace: string;
  /** The Secrets are called `<name>-ca`, `<name>-server`, `<name>-caller` and `<name>-agent`. */
  readonly name: string;
  /** DNS names and IP addresses of the server, for callers and agents. */
  readonly serverNames: readonly string[];
  /** Days that certificates are valid; the CA is valid for ten years. */
  readonly days: number;
  /** Whether there is `<name>-peer`, too, by which the servers of a fleet know each other. */
  readonly peers?: boolean;
  /** Without it, the ServiceAccount of this pod is used. */
  readonly kubeconfig?: string | undefined;
}

/** Deadline for the whole command, ms. The Job of the chart tries again. */
const DEADLINE_MS = 60_000;
/** Attempts to write a Secret while others change it. Two Jobs at once need two. */
const ATTEMPTS = 5;
const CA_DAYS = 3_650;
const DAY_MS = 86_400_000;
const MANAGED_BY = "app.kubernetes.io/managed-by";
const OURS = "culvert";

/** The action for a Secret, its reason, and the certificate that is in it then. */
interface SecretDecision {
  readonly done: "created" | "renewed" | "kept";
  readonly because?: string;
  readonly pair: CertificateAndKey;
  /** It should be renewed, and is not culvert's own. */
  readonly isForeign?: boolean;
}

/**
 * Exit code 1: the API server could not be reached or refused, or a Secret that is not ours needs another certificate.
 */
export async function runPkiKubernetes(
  options: PkiKubernetesOptions,
  print: (line: string) => void = (line) => process.stdout.write(`${line}\n`),
): Promise<void> {
  checkOptions(options);
  const access = options.kubeconfig === undefined ? inCluster() : kubeconfig(options.kubeconfig);
  try {
    await ensureSecrets(options, access, print);
  } catch (error) {
    if (!(error instanceof KubeFailure)) throw error;
    process.stderr.write(`culvert pki kubernetes: ${error.message}\n`);
    process.exitCode = 1;
  }
}

/**
 * Creates missing Secrets and renews certificates that need it. If two processes do this at once, the second one uses
 * what the first one has written. Throws a `KubeFailure`.
 */
export async function ensureSecrets(
  { namespace, name, serverNames, days, peers = false }: PkiKubernetesOptions,
  access: ReadAccess,
  print: (line: string) => void,
  now = new Date(),
): Promise<void> {
  const secrets = new KubeSecrets(access, namespace, AbortSignal.timeout(DEADLINE_MS));
  const foreign: string[] = [];
  const ensure = async (secretName: string, ca: string | undefined, decide: Decide): Promise<Secret> => {
    const [secret, decision] = await ensureSecret(secrets, secretName, ca, decide);
    print(`secret ${namespace}/${secretName}: ${sentence(decision)}`);
    if (decision.isForeign) foreign.push(secretName);
    return secret;
  };
  try {
    const caSecret = await ensure(`${name}-ca`, undefined, (present) => decideAuthority(present, now));
    const authority = await authorityIn(caSecret, `${name}-ca`, now);
    const notAfter = new Date(Math.min(now.getTime() + days * DAY_MS, authority.notAfter.getTime()));
    const leaves: Readonly<Record<string, LeafOptions>> = {
      server: { cn: "culvert-server", names: [...new Set(serverNames)], usage: "server", notAfter },
      caller: { cn: "culvert-client", usage: "client", notAfter },
      agent: { cn: "culvert-agent", usage: "client", notAfter },
      ...(peers ? { peer: { ...PEER, notAfter } } : {}),
    };
    for (const [role, leaf] of Object.entries(leaves)) {
      await ensure(`${name}-${role}`, authority.cert, (present) => decideLeaf(present, authority, leaf, now));
    }
  } finally {
    secrets.close();
  }
  if (foreign.length === 0) return;
  const cure = `run kubectl -n ${namespace} label secret ${foreign.join(" ")} ${MANAGED_BY}=${OURS} --overwrite to have`;
  throw new KubeFailure(`certificates that need renewal are not culvert's own: ${cure} them replaced, or renew them`);
}

type Decide = (present: Secret | undefined) => Promise<SecretDecision>;

/** Reads, decides and writes, again if another process has written in between. */
async function ensureSecret(
  secrets: KubeSecrets,
  name: string,
  ca: string | undefined,
  decide: Decide,
): Promise<[Secret, SecretDecision]> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const present = await secrets.read(name);
    const decision = await decide(present);
    if (decision.done === "kept") return [present as Secret, decision];
    const { cert, key } = decision.pair;
    const data = { "tls.crt": base64(cert), "tls.key": base64(key), "ca.crt": base64(ca ?? cert) };
    // `present` has the resourceVersion: the API server refuses the write if the Secret has changed.
    const before = present ?? newSecret(name);
    const next: Secret = { ...before, data: { ...before.data, ...data } };
    if (await secrets.write(present === undefined ? "create" : "update", name, next)) return [next, decision];
  }
  throw new KubeFailure(`the secret ${name} was changed ${ATTEMPTS} times by others in the meantime: run this again`);
}

function newSecret(name: string): Secret {
  return {
    apiVersion: "v1",
    kind: "Secret",
    type: "kubernetes.io/tls",
    metadata: {
      name,
      labels: { [MANAGED_BY]: OURS },
      // helm does not delete a Secret with this annotation, even if a release has adopted it.
      annotations: { "helm.sh/resource-policy": "keep" },
    },
  };
}

async function decideAuthority(present: Secret | undefined, now: Date): Promise<SecretDecision> {
  if (present === undefined) return { done: "created", pair: await Authority.create("culvert CA", CA_DAYS) };
  const pair = pairIn(present);
  const certificate = certificateIn(pair.cert);
  if (certificate === undefined || !isNearItsEnd(certificate, now)) return { done: "kept", pair };
  return { done: "kept", pair, because: "but less than a third of its life is left: plan a new CA" };
}

async function decideLeaf(
  present: Secret | undefined,
  authority: Authority,
  leaf: LeafOptions,
  now: Date,
): Promise<SecretDecision> {
  if (present === undefined) return { done: "created", pair: await authority.issue(leaf) };
  const pair = pairIn(present);
  const reason = reasonToRenew(pair, authority, leaf, now);
  if (reason === undefined) return { done: "kept", pair };
  // A Secret without our label belongs to a user, and is never overwritten.
  if (present.metadata.labels?.[MANAGED_BY] !== OURS) {
    const because = `although ${reason}: it has no label ${MANAGED_BY}=${OURS}`;
    return { done: "kept", pair, because, isForeign: true };
  }
  return { done: "renewed", because: `because ${reason}`, pair: await authority.issue(leaf) };
}

async function authorityIn(secret: Secret, name: string, now: Date): Promise<Authority> {
  let authority: Authority;
  try {
    authority = await Authority.load(pairIn(secret));
  } catch (error) {
    const cure = "restore it, or delete it for a new CA";
    throw new KubeFailure(
      `the secret ${name} needs a CA with an ECDSA P-256 key in tls.crt and tls.key, which is not there: ${cure}`,
      { cause: error },
    );
  }
  if (authority.notAfter > now) return authority;
  const cure = "delete that secret and run this again, then give all agents and callers the new certificates";
  throw new KubeFailure(`the CA in the secret ${name} expired on ${day(authority.notAfter)}: ${cure}`);
}

function sentence({ done, because, pair }: SecretDecision): string {
  const certificate = certificateIn(pair.cert);
  const until = certificate === undefined ? "" : `, valid until ${day(new Date(certificate.validTo))}`;
  return `${done}${until}${because === undefined ? "" : `, ${because}`}`;
}

function certificateIn(cert: string): X509Certificate | undefined {
  try {
    return new X509Certificate(cert);
  } catch {
    return undefined;
  }
}

function pairIn({ data = {} }: Secret): CertificateAndKey {
  const text = (key: string): string => Buffer.from(data[key] ?? "", "base64").toString("utf8");
  return { cert: text("tls.crt"), key: text("tls.key") };
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}

function day(date: Date): string {
  return date.toISOString().slice(0, 10);
}

/** Checks the rules of Kubernetes for names, which become parts of a URL. */
function checkOptions({ namespace, name, serverNames }: PkiKubernetesOptions): void {
  const label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
  if (!new RegExp(`^${label}$`).test(namespace)) {
    throw new ConfigError(`--namespace needs the name of a namespace, not "${namespace}"`);
  }
  if (!new RegExp(`^${label}(?:\\.${label})*$`).test(name) || name.length > 240) {
    throw new ConfigError(`--name needs a name that a Secret can begin with, not "${name}"`);
  }
  if (serverNames.length === 0)
    throw new ConfigError("--server-names needs at least one name or address of the server");
  for (const serverName of serverNames) checkName(serverName);
}

// ── when a certificate is renewed ────────────────────────────────────────────────────────────────────────────────────

/** A certificate is renewed when less than this part of its lifetime is left, as by cert-manager. */
const MIN_LIFE_LEFT = 1 / 3;

/**
 * Why this certificate must be replaced, as the end of a sentence that begins with "because"; `undefined`: it is fine.
 */
function reasonToRenew(
  { cert, key }: CertificateAndKey,
  authority: Authority,
  { names = [] }: LeafOptions,
  now: Date,
): string | undefined {
  let certificate: X509Certificate;
  let present: readonly string[];
  try {
    certificate = new X509Certificate(cert);
    present = parseAltNames(certificate.subjectAltName ?? "").map(({ value }) => value);
    if (!certificate.checkPrivateKey(createPrivateKey(key))) return "its key belongs to another certificate";
  } catch {
    return "its certificate or key cannot be read";
  }
  if (!certificate.verify(new X509Certificate(authority.cert).publicKey)) return "another CA has signed it";
  if (!sameNames(present, names)) return "the names have changed";
  return isNearItsEnd(certificate, now) ? "less than a third of its life was left" : undefined;
}

/** Whether less than a third of its lifetime is left. */
function isNearItsEnd({ validFrom, validTo }: X509Certificate, now: Date): boolean {
  const [begin, end] = [Date.parse(validFrom), Date.parse(validTo)];
  return end - now.getTime() < (end - begin) * MIN_LIFE_LEFT;
}

function sameNames(present: readonly string[], wanted: readonly string[]): boolean {
  const [a, b] = [new Set(present.map(canonical)), new Set(wanted.map(canonical))];
  return a.size === b.size && [...a].every((name) => b.has(name));
}

/** One spelling for each name: Node writes IPv6 addresses of a certificate in full. */
function canonical(name: string): string {
  return isIP(name) === 6 ? new SocketAddress({ address: name, family: "ipv6" }).address : name.toLowerCase();
}

// ── Secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const SecretObject = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()).optional() }),
  data: z.record(z.string(), z.string()).optional(),
});

/** A Secret as the API server stores it. Fields that we do not know are sent back unchanged. */
export type Secret = z.infer<typeof SecretObject>;

const SECRETS = { group: "", plural: "secrets", singular: "secret" };

/** The Secrets of one namespace. All methods throw a `KubeFailure`. */
export class KubeSecrets {
  readonly #namespace: string;
  readonly #deadline: AbortSignal;
  readonly #collection: KubeCollection;

  /** `deadline` ends every request. */
  constructor(access: ReadAccess, namespace: string, deadline: AbortSignal) {
    this.#collection = new KubeCollection(access, SECRETS, namespace);
    this.#namespace = namespace;
    this.#deadline = deadline;
  }

  async read(name: string): Promise<Secret | undefined> {
    const answer = await this.#collection.ask("get", { name, signal: this.#deadline });
    if (answer.status === 404) return undefined;
    this.#collection.requireSuccess(answer, "get", name);
    const parsed = SecretObject.safeParse(jsonOf(answer.text), { error: schemaMessage });
    if (parsed.success) return parsed.data;
    throw this.#collection.unexpected(`a Secret for ${name}`, firstIssue(parsed.error));
  }

  /** Returns false if another process was faster: the Secret exists by now, or has been changed or deleted. */
  async write(verb: "create" | "update", name: string, secret: Secret): Promise<boolean> {
    const answer = await this.#collection.ask(verb, { name, body: secret, signal: this.#deadline });
    if (answer.status === 409 || (answer.status === 404 && verb === "update")) return false;
    if (answer.status === 404) throw new KubeFailure(`there is no namespace "${this.#namespace}": create it first`);
    this.#collection.requireSuccess(answer, verb, name);
    return true;
  }

  close(): void {
    this.#collection.close();
  }
}
