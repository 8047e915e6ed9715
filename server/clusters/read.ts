import { dirname, resolve } from "node:path";
import { MAX_SOCKET_PATH } from "../../shared/config/listen-address.ts";
import type { FileContent, ParsedFile } from "../../shared/documents/document-store.ts";
import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { faultsOf, type ValidatedDocument, validateDocuments } from "../../shared/documents/schema.ts";
import { type CrlFile, CrlFileError, loadCrls } from "../../shared/tls/revocation-list.ts";
import { loadClientTls, loadPair, TlsFileError, type TlsPair } from "../../shared/tls/tls-material.ts";
import { type Cluster, type ClusterSide, SIDES, type SideName } from "./cluster.ts";
import { type ClusterDocument, clusterDocument, type TokenTrust } from "./document.ts";

const EMPTY = 'it holds no document; write "name: blue" and what else the cluster has.';

/**
 * Parses a file of `--clusters`. `load` reads and checks the certificates, keys, CAs and CRLs that its documents name.
 */
export function parseClusterFile(file: string, text: string, materials: MaterialFiles): ParsedFile<Cluster> {
  const documents: ValidatedDocument<ClusterDocument>[] = validateDocuments(clusterDocument, text);
  if (documents.length === 0) documents.push({ faults: [EMPTY] });
  const named = documents.flatMap(({ value }) => (value === undefined ? [] : namedFiles(value)));
  return {
    paths: named.map((path) => resolve(dirname(file), path)),
    load: () => loadDocuments(documents, { file, folder: dirname(file), materials, inputs: new Map() }),
  };
}

function namedFiles(document: ClusterDocument): string[] {
  return SIDES.flatMap((side) => {
    const { cert, key, ca, crl } = document[side];
    return [cert, key, ca, crl].filter((path) => path !== undefined);
  });
}

/** The file that is loaded. */
interface LoadContext {
  readonly file: string;
  readonly folder: string;
  readonly materials: MaterialFiles;
  readonly inputs: Map<string, string>;
}

function loadDocuments(
  documents: readonly ValidatedDocument<ClusterDocument>[],
  context: LoadContext,
): FileContent<Cluster> {
  const clusters: Cluster[] = [];
  const faulty = documents.map(({ number, value, faults }) => {
    const found = value === undefined ? faults : loadCluster(value, number, context, clusters);
    return { ...(number !== undefined && { number }), faults: found };
  });
  return { documents: clusters, faults: faultsOf(faulty), inputs: context.inputs };
}

/** Adds the cluster to the others, or returns its faults. */
function loadCluster(
  document: ClusterDocument,
  number: number | undefined,
  context: LoadContext,
  clusters: Cluster[],
): readonly string[] {
  const { file, folder } = context;
  const { name, targets, destinations, limits, suspended } = document;
  const faults: string[] = [];
  const agents = readSide("agents", document.agents, context, faults);
  const callers = readSide("callers", document.callers, context, faults);
  const { maxAgents, innerTls, konnectivity, strategies, strictIdentifiers, claims } = document.agents;
  const { fromClusters } = document.callers;
  const uds = document.callers.uds === undefined ? undefined : resolve(folder, document.callers.uds);
  if (Buffer.byteLength(uds ?? "") > MAX_SOCKET_PATH) {
    faults.push(`callers.uds ${uds} is longer than the ${MAX_SOCKET_PATH} bytes a socket path can have.`);
  }
  if (faults.length > 0) return faults;
  clusters.push({
    name,
    file,
    targets,
    destinations,
    limits,
    suspended,
    ...(number !== undefined && { document: number }),
    agents: { ...agents, maxAgents, innerTls, konnectivity, strategies, strictIdentifiers, claims },
    callers: { ...callers, uds, fromClusters },
  });
  return [];
}

const KEYS = { certFile: "cert", keyFile: "key", caFile: "ca" } as const;

/** Reads the files of a side. Their faults are added to `faults`. */
function readSide(
  name: SideName,
  { cert, key, ca, crl, sni, identities, token, sourceCIDRs }: ClusterDocument[SideName],
  { folder, materials, inputs }: LoadContext,
  faults: string[],
): ClusterSide {
  const at = (path: string | undefined): string | undefined => (path === undefined ? undefined : resolve(folder, path));
  const [certFile, keyFile, caFile, crlFile] = [at(cert), at(key), at(ca), at(crl)];
  for (const path of [certFile, keyFile, caFile, crlFile]) if (path !== undefined) inputs.set(path, "");
  const side: Mutable<ClusterSide> = { sni, identities, sourceCIDRs, token: token && withAbsolutePaths(token, folder) };
  /** Each kind of file is read although another one cannot be, so that all faults are reported at once. */
  const attempt = (read: () => void): void => {
    try {
      read();
    } catch (error) {
      if (error instanceof CrlFileError) faults.push(`${name}.crl: ${error.message}.`);
      else if (error instanceof TlsFileError) faults.push(`${name}.${KEYS[error.file]}: ${error.message}.`);
      else throw error;
    }
  };
  attempt(() => {
    if (certFile === undefined || keyFile === undefined) return;
    side.certificate = materials.pair(certFile, keyFile);
    inputs.set(certFile, side.certificate.cert).set(keyFile, side.certificate.key);
  });
  attempt(() => {
    if (caFile === undefined) return;
    side.ca = materials.authorities(caFile);
    inputs.set(caFile, side.ca);
  });
  attempt(() => {
    if (crlFile === undefined) return;
    side.crl = materials.crls(crlFile);
    inputs.set(crlFile, side.crl.pem);
  });
  return side;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

function withAbsolutePaths(token: TokenTrust, folder: string): TokenTrust {
  if (token.kind === "tokenReview") {
    return token.kubeconfig === undefined ? token : { ...token, kubeconfig: resolve(folder, token.kubeconfig) };
  }
  const { jwks } = token;
  if ("file" in jwks) return { ...token, jwks: { file: resolve(folder, jwks.file) } };
  return jwks.caFile === undefined ? token : { ...token, jwks: { ...jwks, caFile: resolve(folder, jwks.caFile) } };
}

/**
 * Certificates, keys, CAs and CRLs by their paths, each checked once for each content: OpenSSL takes milliseconds for a
 * key, and a thousand clusters may name the same files. The same content gives the same object.
 */
export class MaterialFiles {
  /** By the path of the key. */
  readonly #pairs = new Map<string, TlsPair>();
  readonly #authorities = new Map<string, string>();
  readonly #crls = new Map<string, CrlFile>();

  /** Throws a `TlsFileError`. */
  pair(certFile: string, keyFile: string): TlsPair {
    const isSame = ({ cert, key }: TlsPair) => holds(certFile, cert) && holds(keyFile, key);
    return known(this.#pairs, keyFile, isSame, () => loadPair(certFile, keyFile));
  }

  /** Throws a `TlsFileError`. */
  authorities(caFile: string): string {
    const isSame = (ca: string) => holds(caFile, ca);
    return known(this.#authorities, caFile, isSame, () => loadClientTls({ caFile }).ca ?? "");
  }

  /** Throws a `CrlFileError`. */
  crls(path: string): CrlFile {
    const isSame = ({ pem }: CrlFile) => holds(path, pem);
    return known(this.#crls, path, isSame, () => loadCrls(path));
  }

  /** Forgets all other files. */
  retain(paths: ReadonlySet<string>): void {
    for (const files of [this.#pairs, this.#authorities, this.#crls]) {
      for (const path of files.keys()) if (!paths.has(path)) files.delete(path);
    }
  }
}

function known<T>(all: Map<string, T>, path: string, isSame: (content: T) => boolean, load: () => T): T {
  const before = all.get(path);
  if (before !== undefined && isSame(before)) return before;
  const content = load();
  all.set(path, content);
  return content;
}

function holds(path: string, content: string): boolean {
  try {
    return readBoundedSync(path).toString("utf8") === content;
  } catch {
    return false;
  }
}
