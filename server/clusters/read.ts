import { dirname, resolve } from "node:path";
import { shownDocument, yamlDocuments } from "../../shared/documents/yaml-documents.ts";
import { CrlFileError } from "../../shared/tls/revocation-list.ts";
import { TlsFileError } from "../../shared/tls/tls-material.ts";
import type { Cluster, ClusterSide } from "./cluster.ts";
import { type ClusterDocument, parseDocument } from "./document.ts";
import type { MaterialFiles } from "./material.ts";
import type { TokenTrust } from "./token-document.ts";

/** A document, or its faults; `number`: in a file of several. */
type ParsedDocument = { readonly number?: number } & (
  | { readonly document: ClusterDocument }
  | { readonly faults: readonly string[] }
);

/** The documents of a file, and which files they name: those have not been read yet. */
export interface ParsedFile {
  readonly file: string;
  readonly text: string;
  readonly documents: readonly ParsedDocument[];
  /** The file itself, and the certificates, keys, CAs and CRLs. */
  readonly paths: readonly string[];
}

/** What a file of `--clusters` says, together with the files that its documents name. */
export interface ClusterFile {
  readonly clusters: readonly Cluster[];
  /** Sentences, each with the path of a key. If there is one, the clusters are not all there are. */
  readonly faults: readonly string[];
  /** The contents that all this was made of, by their paths; of a named file that could not be used, "". */
  readonly inputs: ReadonlyMap<string, string>;
}

/** Faults shown of one file: enough to see what is wrong with it. */
const MAX_FAULTS = 20;
/** sockaddr_un has room for 108 bytes with the final zero. */
const MAX_SOCKET_PATH = 107;

export function parseClusterFile(file: string, text: string): ParsedFile {
  const documents: ParsedDocument[] = yamlDocuments(text).map(({ value, fault, ...number }) => ({
    ...number,
    ...(fault === undefined ? parseDocument(value) : { faults: [fault] }),
  }));
  if (documents.length === 0) {
    documents.push({ faults: ['it holds no document; write "name: blue" and what else the cluster has.'] });
  }
  const named = documents.flatMap((parsed) => ("document" in parsed ? namedFiles(file, parsed.document) : []));
  return { file, text, documents, paths: [file, ...named] };
}

function namedFiles(file: string, { agents, callers }: ClusterDocument): string[] {
  const named = [agents, callers].flatMap(({ cert, key, ca, crl }) => [cert, key, ca, crl]);
  return named.filter((path) => path !== undefined).map((path) => resolve(dirname(file), path));
}

/** What the documents of a file are read with. */
interface Reading {
  readonly file: string;
  readonly folder: string;
  readonly materials: MaterialFiles;
  readonly inputs: Map<string, string>;
}

/** Reads and checks the files that the documents name. */
export function loadClusterFile({ file, text, documents }: ParsedFile, materials: MaterialFiles): ClusterFile {
  const inputs = new Map([[file, text]]);
  const reading = { file, folder: dirname(file), materials, inputs };
  const clusters: Cluster[] = [];
  const faults: string[] = [];
  for (const parsed of documents) {
    const { number } = parsed;
    const loaded = "document" in parsed ? loadCluster(parsed.document, number, reading) : parsed;
    if ("cluster" in loaded) clusters.push(loaded.cluster);
    else faults.push(...loaded.faults.map((fault) => `${shownDocument(number)}${fault}`));
  }
  return { clusters, faults: faults.slice(0, MAX_FAULTS), inputs };
}

type Loaded = { readonly cluster: Cluster } | { readonly faults: readonly string[] };

function loadCluster(document: ClusterDocument, number: number | undefined, reading: Reading): Loaded {
  const { file, folder } = reading;
  const agents = readSide("agents", document.agents, reading);
  const callers = readSide("callers", document.callers, reading);
  const faults = [agents, callers].flatMap((side) => ("faults" in side ? side.faults : []));
  const uds = document.callers.uds === undefined ? undefined : resolve(folder, document.callers.uds);
  if (Buffer.byteLength(uds ?? "") > MAX_SOCKET_PATH) {
    faults.push(`callers.uds ${uds} is longer than the ${MAX_SOCKET_PATH} bytes a socket path can have.`);
  }
  if ("faults" in agents || "faults" in callers || faults.length > 0) return { faults };
  const { name, targets, limits, suspended } = document;
  const { maxAgents, innerTls } = document.agents;
  const cluster = {
    ...{ name, file, targets, limits, suspended },
    ...(number === undefined ? {} : { document: number }),
    agents: { ...agents, ...(maxAgents && { maxAgents }), ...(innerTls && { innerTls }) },
    callers: { ...callers, ...(uds === undefined ? {} : { uds }) },
  };
  return { cluster: frozen(cluster) };
}

const KEYS = { certFile: "cert", keyFile: "key", caFile: "ca" } as const;

function readSide(
  name: "agents" | "callers",
  { cert, key, ca, crl, sni, identities, token, sourceCIDRs }: ClusterDocument["agents" | "callers"],
  { folder, materials, inputs }: Reading,
): ClusterSide | { faults: string[] } {
  const at = (path: string | undefined): string | undefined => (path === undefined ? undefined : resolve(folder, path));
  const [certFile, keyFile, caFile, crlFile] = [at(cert), at(key), at(ca), at(crl)];
  for (const path of [certFile, keyFile, caFile, crlFile]) if (path !== undefined) inputs.set(path, "");
  try {
    const side: Mutable<ClusterSide> = { sni, identities };
    if (certFile !== undefined && keyFile !== undefined) {
      side.certificate = materials.pair(certFile, keyFile);
      inputs.set(certFile, side.certificate.cert).set(keyFile, side.certificate.key);
    }
    if (caFile !== undefined) {
      side.ca = materials.authorities(caFile);
      inputs.set(caFile, side.ca);
    }
    if (crlFile !== undefined) {
      side.crl = materials.crls(crlFile);
      inputs.set(crlFile, side.crl.pem);
    }
    if (token !== undefined) side.token = located(token, folder);
    if (sourceCIDRs !== undefined) side.sourceCIDRs = sourceCIDRs;
    return side;
  } catch (error) {
    if (error instanceof CrlFileError) return { faults: [`${name}.crl: ${error.message}.`] };
    if (!(error instanceof TlsFileError)) throw error;
    return { faults: [`${name}.${KEYS[error.file]}: ${error.message}.`] };
  }
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** The paths in it lead on from the folder of the document. */
function located(token: TokenTrust, folder: string): TokenTrust {
  if (token.kind === "tokenReview") {
    return token.kubeconfig === undefined ? token : { ...token, kubeconfig: resolve(folder, token.kubeconfig) };
  }
  const { jwks } = token;
  if ("file" in jwks) return { ...token, jwks: { file: resolve(folder, jwks.file) } };
  return jwks.caFile === undefined ? token : { ...token, jwks: { ...jwks, caFile: resolve(folder, jwks.caFile) } };
}

function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const part of Object.values(value)) frozen(part);
  return Object.freeze(value);
}
