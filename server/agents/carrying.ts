import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import { valuesOf } from "../../shared/listen/first-request.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { splice } from "../../shared/relay/splice.ts";
import { LINK_HEADER } from "../../shared/wire/handshake.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { LinkOwners } from "../tunnels/links.ts";
import type { Admission } from "./admission.ts";
import { type AgentHost, CarriedConnection } from "./authenticate-agent.ts";

// A resume that reaches another server than the link's own is carried to its owner (docs/link-protocol.md).

/** A link that another server has issued. */
interface ForeignLink {
  readonly link: string;
  readonly owner: string;
}

/** The id of a link: the id of its server (`--server-id`), and what is unique there. */
const LINK_ID = /^([A-Za-z0-9._:-]{1,128})\/[A-Za-z0-9-]{1,64}$/;

/** The foreign link that an upgrade wants to resume; `undefined`: it names none, or one of this server. */
export function foreignLink(rawHeaders: readonly string[], serverId: string): ForeignLink | undefined {
  const [link = "", ...others] = valuesOf(rawHeaders, LINK_HEADER);
  const owner = others.length === 0 ? LINK_ID.exec(link)?.[1] : undefined;
  return owner === undefined || owner === serverId ? undefined : { link, owner };
}

/** A request as it was received; Node decodes headers as latin1. */
export function requestBytes({ url, rawHeaders }: AdmittedUpgrade["request"]): Buffer {
  const lines = rawHeaders.flatMap((name, at) => (at % 2 === 0 ? `${name}: ${rawHeaders[at + 1]}\r\n` : []));
  return Buffer.from(`GET ${url} HTTP/1.1\r\n${lines.join("")}\r\n`, "latin1");
}

/** The upgrade of an agent that this server would admit. */
interface AdmittedUpgrade extends Pick<Admission, "host" | "credential" | "deadline"> {
  readonly request: Pick<IncomingMessage, "url" | "rawHeaders">;
  readonly connection: IncomingConnection<AgentHost>;
}

/** An upgrade that resumes a foreign link. */
interface Resuming {
  readonly owner: string;
  /** The number of connections of this cluster that are carried to this owner is counted under this key. */
  readonly place: string;
  /** The fields of its log lines. */
  readonly line: Readonly<Record<string, unknown>>;
}

/**
 * How long the owner may take to accept a connection, ms. Meanwhile the agent gets no answer, and if the owner has
 * gone, the agent gets its new link later by this time. It is also a share of the grace, in which the agent dials
 * several times.
 */
const OWNER_MS = { least: 250, most: 2_000, shareOfGrace: 1 / 6 } as const;

/** The connections that this server carries to the owners of their links. */
export class Carrying {
  readonly #owners: LinkOwners;
  readonly #context: ServerContext;
  /** How long an owner may take, ms. */
  readonly #ownerMs: number;
  /** The number of carried connections, by owner and cluster. */
  readonly #counts = new Map<string, number>();
  /** The number of connections whose owner has not answered yet, by cluster: an agent may name any number of owners. */
  readonly #asking = new Map<string, number>();

  constructor(owners: LinkOwners, context: ServerContext) {
    this.#owners = owners;
    this.#context = context;
    const { least, most, shareOfGrace } = OWNER_MS;
    this.#ownerMs = Math.max(least, Math.min(most, shareOfGrace * context.options.linkGraceMs));
  }

  get size(): number {
    let size = 0;
    for (const count of this.#counts.values()) size += count;
    return size;
  }

  /**
   * Asks the owner of the link, if it is another server. `undefined`: the upgrade is to be answered here. A
   * connection that another server has carried here is not carried further. If the owner takes the connection, returns
   * the function that hands it over; nothing may have been read after its request.
   */
  async ask(upgrade: AdmittedUpgrade): Promise<(() => void) | undefined> {
    const { connection, credential, host } = upgrade;
    const resuming = this.#resuming(upgrade);
    if (resuming === undefined) return undefined;
    const { owner, place } = resuming;
    const { name: cluster, maxAgents, memory } = host.tunnels;
    // Each agent has at most two carriers. At the owner, unauthenticated carriers may wait for their hello, and as many
    // again for the end of their inner TLS handshake.
    const most = maxAgents + this.#context.options.maxInnerHandshakes;
    const isFull = (this.#counts.get(place) ?? 0) >= 2 * most;
    if (isFull || (this.#asking.get(cluster) ?? 0) >= most) {
      const what = isFull ? "are carried to that server" : "wait for other servers";
      this.#notCarried(resuming, `too many connections of its cluster ${what}`);
      return undefined;
    }
    add(this.#counts, place, 1);
    add(this.#asking, cluster, 1);
    const ended = new AbortController();
    const onGone = (): void => ended.abort(new Error("the agent has closed the connection"));
    const late = setTimeout(() => ended.abort(new Error("the server does not answer in time")), this.#ownerMs);
    connection.socket.once("close", onGone);
    try {
      const chain = credential instanceof CulvertError ? [] : (credential.peer?.chain ?? []);
      const facts = { cluster, source: connection.source, chain };
      const stream = await this.#owners.open(owner, facts, ended.signal, memory);
      return () => this.#begin(stream, upgrade, resuming);
    } catch (error) {
      add(this.#counts, place, -1);
      this.#notCarried(resuming, (error as Error).message);
      return undefined;
    } finally {
      add(this.#asking, cluster, -1);
      clearTimeout(late);
      connection.socket.off("close", onGone);
    }
  }

  #resuming({ request, connection, host, credential }: AdmittedUpgrade): Resuming | undefined {
    const { options, draining } = this.#context;
    if (draining() || connection instanceof CarriedConnection) return undefined;
    const foreign = foreignLink(request.rawHeaders, options.serverId);
    if (foreign === undefined) return undefined;
    const { link, owner } = foreign;
    const { name: cluster } = host.tunnels;
    const identity = credential instanceof CulvertError ? "" : credential.identity;
    return {
      owner,
      place: `${owner} ${cluster}`,
      line: { remote: connection.remote, cluster, identity, link, server: owner },
    };
  }

  #begin(stream: Duplex, { request, connection, host, deadline }: AdmittedUpgrade, { place, line }: Resuming): void {
    const { options, metrics, throttledLog } = this.#context;
    const { socket } = connection;
    const { memory } = host.tunnels;
    deadline?.end(); // the owner has its own
    metrics.links.resumeCarried();
    throttledLog.write("info", line, "resume carried to the server that has the link");
    memory.onConnection(CONNECTION_BYTES.tls);
    stream.write(requestBytes(request));
    const totals = splice(socket, stream, {
      stallTimeoutMs: options.stallTimeoutMs,
      corkCaller: true,
      resetCaller: () => resetSocket(socket),
      memory,
    });
    void totals.then(({ bytesUp, bytesDown, endedBy, error }) => {
      memory.onConnection(-CONNECTION_BYTES.tls);
      add(this.#counts, place, -1);
      const reason = error && { reason: printable(error.message) };
      const more = { bytesUp, bytesDown, endedBy: SIDES[endedBy], ...reason };
      throttledLog.write("info", { ...line, ...more }, "carried connection ended");
    });
  }

  #notCarried({ line }: Resuming, why: string): void {
    this.#context.metrics.links.resumeFailed("not_carried");
    const reason = printable(why);
    this.#context.throttledLog.write("warn", { ...line, reason }, "resume not carried to the server that has the link");
  }
}

/** The sides of a splice, as they are called here. */
const SIDES = { caller: "agent", target: "server", stall: "stall", memory: "memory" } as const;

/** Adds to a count; one of 0 is forgotten. */
function add(counts: Map<string, number>, key: string, delta: number): void {
  const count = (counts.get(key) ?? 0) + delta;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
