import { writeFileSync } from "node:fs";
import { rename, rm, writeFile } from "node:fs/promises";
import { stringify } from "yaml";
import { Authority, type CertificateAndKey } from "../../shared/pki/certificates.ts";
import type { CallerListener } from "./caller.ts";
import { runConcurrently } from "./concurrently.ts";
import { TempDir } from "./temp.ts";

/** Changes of a cluster's document for a test; each side keeps the keys that are not named. */
export interface DocumentChange {
  readonly agents?: object;
  readonly callers?: object;
  readonly [key: string]: unknown;
}

/** One cluster of `--clusters`: its document, its CA, and what its agents and callers hold. */
export class ClusterFiles {
  readonly name: string;
  readonly authority: Authority;
  readonly #dir: TempDir;
  #agentPair: Promise<CertificateAndKey> | undefined;
  #callerPair: Promise<CertificateAndKey> | undefined;

  private constructor(name: string, dir: TempDir, authority: Authority) {
    this.name = name;
    this.#dir = dir;
    this.authority = authority;
  }

  /** With a CA of its own, or under one that is shared. */
  static async create(name: string, dir: TempDir, shared?: Authority): Promise<ClusterFiles> {
    const cluster = new ClusterFiles(name, dir, shared ?? (await Authority.create(`CA of ${name}`)));
    await writeFile(cluster.#file("ca"), cluster.ca);
    await cluster.renewCertificate();
    return cluster;
  }

  /** On both ports. */
  get sni(): string {
    return `${this.name}.example`;
  }

  get ca(): string {
    return this.authority.cert;
  }

  get uds(): string {
    return this.#file("sock");
  }

  /** Another certificate for the server, in the same files. */
  async renewCertificate(): Promise<CertificateAndKey> {
    const pair = await this.issueServer();
    // One file for both, so that no reader finds halves that do not belong together.
    await this.#replace("pem", pair.cert + pair.key);
    return pair;
  }

  /** A new certificate for the server, which the caller of this puts where the document says. */
  issueServer(names: readonly string[] = [this.sni, "127.0.0.1"]): Promise<CertificateAndKey> {
    return this.authority.issue({ cn: this.name, names: [...names], usage: "server" });
  }

  /** A new certificate for an agent of this cluster; without a name, with the same subject as all others. */
  issueAgent(cn = "agent"): Promise<CertificateAndKey> {
    return this.authority.issue({ cn, o: [`agents:${this.name}`], usage: "client" });
  }

  async write(change: DocumentChange = {}): Promise<void> {
    const { name } = this;
    const { agents, callers, ...rest } = change;
    const files = { cert: `${name}.pem`, key: `${name}.pem`, ca: `${name}.ca` };
    const side = (role: string) => ({ sni: [this.sni], ...files, identities: [`O=${role}:${name}`] });
    const document = {
      name,
      ...rest,
      agents: { ...side("agents"), ...agents },
      callers: { ...side("callers"), uds: `${name}.sock`, ...callers },
    };
    await this.#replace("yaml", stringify(document));
  }

  remove(): Promise<void> {
    return rm(this.#file("yaml"));
  }

  /** Made when first asked for: most clusters of a thousand have nobody. */
  get agentPair(): Promise<CertificateAndKey> {
    this.#agentPair ??= this.issueAgent();
    return this.#agentPair;
  }

  get callerPair(): Promise<CertificateAndKey> {
    this.#callerPair ??= this.authority.issue({ cn: "kube-apiserver", o: [`callers:${this.name}`], usage: "client" });
    return this.#callerPair;
  }

  /** The options of an agent that say who it is, and where it finds the server by its name. */
  async agentOptions(port: number) {
    const { cert, key } = await this.agentPair;
    const [agentCert, agentKey] = [this.#file("agent.crt"), this.#file("agent.key")];
    // In one go: another agent of this cluster may start, and read them, meanwhile.
    writeFileSync(agentCert, cert);
    writeFileSync(agentKey, key);
    const where = { proxyServerHost: this.sni, proxyServerPort: port, serverAddress: "127.0.0.1", allowLoopback: true };
    return { ...where, caCert: this.#file("ca"), agentCert, agentKey };
  }

  /** Where its callers go: the server's port by the cluster's name, or its unix socket. */
  async listener(via: "tls" | "uds", port: number): Promise<CallerListener> {
    if (via === "uds") return { path: this.uds };
    return { host: "127.0.0.1", port, tls: { ca: this.ca, servername: this.sni, ...(await this.callerPair) } };
  }

  #file(ending: string): string {
    return this.#dir.file(`${this.name}.${ending}`);
  }

  async #replace(ending: string, text: string): Promise<void> {
    const path = this.#file(ending);
    await writeFile(`${path}.new`, text);
    await rename(`${path}.new`, path);
  }
}

/** A folder for `--clusters`. */
export class ClusterFolder implements Disposable {
  readonly dir = new TempDir();
  readonly #clusters = new Map<string, ClusterFiles>();

  /** With documents for all of them. */
  static async create(names: readonly string[]): Promise<ClusterFolder> {
    const folder = new ClusterFolder();
    const clusters: ClusterFiles[] = [];
    await runConcurrently(names.length, 8, async (index) => {
      const cluster = await ClusterFiles.create(names[index] as string, folder.dir);
      await cluster.write();
      clusters[index] = cluster;
    });
    for (const cluster of clusters) folder.#clusters.set(cluster.name, cluster);
    return folder;
  }

  get path(): string {
    return this.dir.path;
  }

  /** In the order of their names in `create`. */
  get all(): readonly ClusterFiles[] {
    return [...this.#clusters.values()];
  }

  get(name: string): ClusterFiles {
    const cluster = this.#clusters.get(name);
    if (cluster === undefined) throw new Error(`there is no cluster ${name}`);
    return cluster;
  }

  [Symbol.dispose](): void {
    this.dir[Symbol.dispose]();
  }
}

/** `blue-1`, `blue-2`, … */
export function numbered(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index + 1}`);
}
