import { randomInt } from "node:crypto";
import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../shared/address/target.ts";
import { RecentMap } from "../shared/basics/collections.ts";
import { SharedWork, untilAborted } from "../shared/basics/promises.ts";
import { Refusal, serverAway } from "./refusal.ts";

/** Opens a connection to the name server, through the tunnel. */
export type OpenNameServer = (server: Target, signal: AbortSignal) => Promise<Duplex>;

/** Names whose addresses are kept. */
const MAX_NAMES = 1_000;
/** Addresses are kept for the time of their record, and for this at most, seconds. */
const MAX_TTL = 30;
/** A message over TCP has a length of 16 bits before it (RFC 1035 §4.2.2). */
const MAX_MESSAGE = 2 + 65_535;
/** The domain that names of Services may leave out. */
const CLUSTER_DOMAIN = "cluster.local";
/** A name server has this time for its answers, ms. Others may be asked then, within --connect-timeout. */
const ANSWER_MS = 4_000;
const TYPES = ["A", "AAAA"] as const;
const NXDOMAIN = 3;

interface KnownName {
  readonly addresses: readonly string[];
  readonly until: number;
}

/** Asks a name server of the cluster, over TCP through the tunnel. */
export class ClusterDns {
  readonly #open: OpenNameServer;
  readonly #known = new RecentMap<string, KnownName>(MAX_NAMES);
  /** Dials of one name at the same time share its questions. */
  readonly #asked = new SharedWork<readonly string[]>();

  constructor(open: OpenNameServer) {
    this.#open = open;
  }

  /**
   * All addresses of a name, at least one. Rejects with a `Refusal`: `dns_error` if the name has none, and that of the
   * tunnel if the name server cannot be reached.
   */
  async find(host: string, server: Target, signal: AbortSignal): Promise<readonly string[]> {
    const known = this.#known.get(host);
    if (known !== undefined && known.until > performance.now()) return known.addresses;
    return this.#asked.join(
      `${host} ${formatTarget(server)}`,
      (over) => this.#find(host, server, AbortSignal.any([over, AbortSignal.timeout(ANSWER_MS)])),
      (found) => untilAborted(found, signal),
    );
  }

  async #find(host: string, server: Target, signal: AbortSignal): Promise<readonly string[]> {
    const name = host.replace(/\.$/, "");
    const fullName = name.endsWith(".svc") ? `${name}.${CLUSTER_DOMAIN}` : name;
    const { addresses, ttl } = await this.#ask(fullName, server, signal);
    if (addresses.length === 0) {
      throw new Refusal(502, "dns_error", `no such host: "${host}" does not resolve at the cluster's name server`);
    }
    this.#known.set(host, { addresses, until: performance.now() + Math.min(ttl, MAX_TTL) * 1_000 });
    return addresses;
  }

  /** The questions for both families follow each other on one connection. */
  async #ask(name: string, server: Target, signal: AbortSignal) {
    const { default: packets } = await import("dns-packet");
    const answers = new Map<number, FamilyAddresses>();
    const ids = TYPES.map(() => randomInt(65_536));
    let stream: Duplex | undefined;
    try {
      stream = await this.#open(server, signal);
      for (const [at, type] of TYPES.entries()) {
        const flags = packets.RECURSION_DESIRED;
        stream.write(packets.streamEncode({ type: "query", id: ids[at] ?? 0, flags, questions: [{ type, name }] }));
      }
      for await (const message of messagesOf(stream, signal)) {
        const packet = packets.streamDecode(message);
        if (!ids.includes(packet.id ?? -1)) continue;
        answers.set(packet.id ?? -1, addressesIn(packet));
        if (answers.size === new Set(ids).size) break;
      }
    } catch (error) {
      if (error instanceof Refusal) throw error;
      const why = signal.aborted ? "it did not answer" : (error as Error).message;
      throw new Refusal(502, "dns_error", `the cluster's name server failed for "${name}": ${why}`);
    } finally {
      stream?.destroy();
    }
    if (answers.size === 0) throw serverAway(`the cluster's name server did not answer for "${name}"`);
    const all = ids.flatMap((id) => answers.get(id) ?? []);
    const addresses = all.flatMap((each) => each.addresses);
    const failure = all.find(({ code }) => code !== 0 && code !== NXDOMAIN);
    if (addresses.length === 0 && failure !== undefined) {
      const sentence = `the cluster's name server failed for "${name}" (response code ${failure.code})`;
      throw new Refusal(502, "dns_error", sentence);
    }
    return { addresses, ttl: Math.min(...all.map(({ ttl }) => ttl)) };
  }
}

interface FamilyAddresses {
  readonly addresses: readonly string[];
  readonly ttl: number;
  /** The response code. */
  readonly code: number;
}

function addressesIn(packet: DnsPacket): FamilyAddresses {
  const records = (packet.answers ?? []).flatMap((record) =>
    record.type === "A" || record.type === "AAAA" ? [{ address: record.data, ttl: record.ttl ?? 0 }] : [],
  );
  const ttl = Math.min(MAX_TTL, ...records.map((record) => record.ttl));
  return { addresses: records.map(({ address }) => address), ttl, code: (packet.flags ?? 0) & 0xf };
}

type DnsPacket = import("dns-packet").Packet;

/** Messages with their lengths. Ends with the stream. */
async function* messagesOf(stream: Duplex, signal: AbortSignal): AsyncGenerator<Buffer> {
  const onAbort = (): void => void stream.destroy(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    let bytes = Buffer.alloc(0);
    for await (const chunk of stream) {
      bytes = Buffer.concat([bytes, chunk as Buffer]);
      while (bytes.length >= 2 && bytes.length >= 2 + bytes.readUInt16BE(0)) {
        const length = 2 + bytes.readUInt16BE(0);
        yield bytes.subarray(0, length);
        bytes = bytes.subarray(length);
      }
      if (bytes.length > MAX_MESSAGE) return;
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
