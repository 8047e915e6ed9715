import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { TLSSocket } from "node:tls";
import { connectThrough, dialListener } from "../harness/caller.ts";
import { scrapePort } from "../harness/scrape.ts";
import { waitFor, within } from "../harness/wait.ts";
import { every } from "./pause.ts";
import { documentOf, type Site, type SoakedCluster, secretOf } from "./site.ts";
import type { Tally } from "./tally.ts";
import type { SoakTargets } from "./targets.ts";

const SEEN_MS = 20_000;

/** Replaces certificates and edits documents, and sees that each is in use soon after. */
export class Changes {
  readonly #site: Site;
  readonly #targets: SoakTargets;
  readonly #tally: Tally;
  readonly #edits = new Map<string, number>();
  #turn = 0;

  constructor(site: Site, targets: SoakTargets, tally: Tally) {
    this.#site = site;
    this.#targets = targets;
    this.#tally = tally;
  }

  /** One change each `everyMs`, of each kind and each cluster in turn, until the signal is aborted. */
  async run(everyMs: number, signal: AbortSignal): Promise<void> {
    await every(everyMs, signal, async () => {
      const { clusters } = this.#site;
      const cluster = clusters[Math.floor(this.#turn / 4) % clusters.length] as SoakedCluster;
      const kind = this.#turn++ % 4;
      try {
        if (kind === 0) await this.#renewServer(cluster);
        else if (kind === 1) await this.#editDocument(cluster);
        else await this.#renewAgent(cluster, kind - 2);
        this.#tally.changes++;
      } catch (error) {
        this.#tally.fault(`a change of ${cluster.files.name}: ${(error as Error).message}`);
      }
    });
  }

  async #renewServer({ files, otherName, secret }: SoakedCluster): Promise<void> {
    const renewed = await files.issueServer([files.sni, otherName]);
    secret.update(secretOf(files, renewed));
    const { fingerprint256 } = new X509Certificate(renewed.cert);
    await seen(async () => (await this.#shownTo(files)) === fingerprint256, "the server's new certificate");
  }

  /** Any connection that is made after the change shows the new certificate: a planned one, or one after a cut. */
  async #renewAgent({ files, agents }: SoakedCluster, index: number): Promise<void> {
    const agent = agents[index] as SoakedCluster["agents"][number];
    const resumes = async () => (await scrapePort(agent.soaked.healthPort)).sum("culvert_agent_link_resumes_total", {});
    const before = await resumes();
    agent.secret.update(secretOf(files, await files.issueAgent()));
    await seen(async () => (await resumes()) > before, `a connection with ${agent.soaked.name}'s new certificate`);
  }

  async #editDocument(cluster: SoakedCluster): Promise<void> {
    const { files, otherName } = cluster;
    const edit = (this.#edits.get(files.name) ?? 0) + 1;
    this.#edits.set(files.name, edit);
    await files.write(documentOf(cluster, edit));
    const expected = edit % 2 === 1;
    const what = `the name ${otherName} ${expected ? "to be served" : "to be gone"}`;
    await seen(async () => (await this.#served(files, otherName)) === expected, what);
  }

  /** Whether a CONNECT by this name in SNI is answered 200. */
  async #served(files: SoakedCluster["files"], servername: string): Promise<boolean> {
    const listener = await files.listener("tls", this.#site.callerPort);
    if (!("tls" in listener) || listener.tls === undefined) throw new Error("the listener has no TLS");
    this.#tally.connections++;
    const named = { ...listener, tls: { ...listener.tls, servername } };
    try {
      await using connection = await connectThrough(named, this.#targets.echo.address);
      return connection.status === 200;
    } catch {
      return false;
    }
  }

  async #shownTo(files: SoakedCluster["files"]): Promise<string> {
    const socket = dialListener(await files.listener("tls", this.#site.callerPort)) as TLSSocket;
    try {
      await within(once(socket, "secureConnect"), SEEN_MS, "a handshake");
      return socket.getPeerCertificate().fingerprint256;
    } finally {
      socket.destroy();
    }
  }
}

function seen(condition: () => Promise<boolean>, what: string): Promise<boolean> {
  return waitFor(condition, { deadlineMs: SEEN_MS, everyMs: 200, what });
}
