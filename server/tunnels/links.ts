import { randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { ProvenResume, ResumeAnswer } from "../../shared/link/control.ts";
import type { Link } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import type { Endpoint } from "../../shared/listen/preface.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { HANDSHAKE_VERSION, type LinkRefused } from "../../shared/wire/handshake.ts";
import type { TokenIdentity, TokenVerifier } from "../tokens/verifier.ts";
import { type AgentCandidate, refused } from "./agent-places.ts";

/** The proven credential of an agent. */
export interface Credential {
  /** The name that it proves, which stays when the certificate or token is renewed. */
  readonly identity: string;
  /** The certificate, if it is one, and the CA (PEM) that has verified it. */
  readonly peer: PeerIdentity | undefined;
  readonly ca: string | undefined;
  /** The token, if it is one; it is verified again regularly. */
  readonly token: ProvenToken | undefined;
}

export interface ProvenToken {
  readonly text: string;
  readonly identity: TokenIdentity;
  /** Verifies by the rules of the moment. */
  readonly verifier: { readonly verify: TokenVerifier["verify"] };
}

/** The part of a link that a resume uses. */
export type HeldLink = Pick<Link, "received" | "canResumeAt" | "offer">;

/** A link that may get another carrier, and the agent that may give it one. */
export interface ResumableLink {
  readonly id: string;
  readonly cluster: string;
  readonly owner: AgentCandidate;
  /** Every resume proves that it has this key. */
  readonly key: LinkKey;
  /** The key comes from an inner TLS: nothing else on a new carrier proves which agent opens it. */
  readonly isInner: boolean;
  /** Present from its first carrier on. */
  link: HeldLink | undefined;
  /** When the certificate of its agent expires. */
  goodUntil: Date | undefined;
  /** The owner has proved a credential again. */
  onCredential: ((credential: Credential) => void) | undefined;
}

/** A resume that has been accepted. */
export interface AcceptedResume {
  readonly entry: ResumableLink;
  readonly link: HeldLink;
  readonly answer: ResumeAnswer;
}

/** The links that this server has issued and that have not ended. */
export class Links {
  readonly #serverId: string;
  readonly #links = new Map<string, ResumableLink>();

  constructor(serverId: string) {
    this.#serverId = serverId;
  }

  get size(): number {
    return this.#links.size;
  }

  /** A new link. Its id names this server to the others. `innerKey`: the key of the inner TLS that it begins with. */
  issue(cluster: string, owner: AgentCandidate, innerKey?: LinkKey): ResumableLink {
    const id = `${this.#serverId}/${randomUUID()}`;
    const entry: ResumableLink = {
      id,
      cluster,
      owner,
      key: innerKey ?? LinkKey.random(),
      isInner: innerKey !== undefined,
      link: undefined,
      goodUntil: undefined,
      onCredential: undefined,
    };
    this.#links.set(id, entry);
    return entry;
  }

  forget(id: string): void {
    this.#links.delete(id);
  }

  /**
   * Finds the link that a hello resumes; throws `LinkRefused`, with a close code for each thing that can disagree. A
   * resume that is refused changes nothing; one that is accepted has used its proof up. `owner`: the agent that has
   * been authenticated on this carrier. It is absent under inner TLS, where only the proof says which agent it is; such
   * a resume renews no credential, so it is refused when the certificate has expired.
   */
  resume(cluster: string, resume: ProvenResume, owner: AgentCandidate | undefined): AcceptedResume {
    const entry = this.#links.get(resume.link);
    // A link of another cluster counts as unknown: the CA there may give the same names to others.
    if (entry?.link === undefined || entry.cluster !== cluster) throw this.#unknown(resume.link);
    const { link, key, isInner, goodUntil } = entry;
    if (owner !== undefined) requireOwner(entry, owner);
    if (isInner !== (owner === undefined) || !key.accepts(resume)) {
      throw refused("badProof", "the proof of this resume is wrong, or was used before");
    }
    if (owner === undefined && goodUntil !== undefined && goodUntil < new Date()) {
      throw refused("unknownLink", "the certificate by which this link was opened has expired");
    }
    const { received } = link;
    if (!link.canResumeAt(resume.received)) {
      const sentence = `the link cannot go on at byte ${resume.received}: it is not kept, or was never sent`;
      throw refused("badOffset", sentence);
    }
    key.spend(resume);
    const proof = key.answer(resume, received);
    return { entry, link, answer: { type: "resumed", version: HANDSHAKE_VERSION, received, proof } };
  }

  /** Finds the link whose owner renews its credential through another inner TLS; throws `LinkRefused`. */
  findForRenewal(cluster: string, id: string, owner: AgentCandidate): ResumableLink {
    const entry = this.#links.get(id);
    if (entry === undefined || entry.cluster !== cluster) throw this.#unknown(id);
    requireOwner(entry, owner);
    return entry;
  }

  #unknown(id: string): LinkRefused {
    const isOurs = id.startsWith(`${this.#serverId}/`);
    if (isOurs) return refused("unknownLink", `server "${this.#serverId}" has no such link any more`);
    return refused("foreignLink", `this is server "${this.#serverId}", and the link is another server's`);
  }
}

function requireOwner({ owner }: ResumableLink, { agentId, instance, identity }: AgentCandidate): void {
  if (owner.identity === identity && owner.agentId === agentId && owner.instance === instance) return;
  throw refused("linkOfAnother", "this link belongs to another agent: its certificate, id or process is another one");
}

// ── links of other servers ──────────────────────────────────────────────────────────────────────────────────────────

/** Facts about an agent's connection that another server passes on to the owner of its link, beside the bytes. */
export interface CarriedFacts {
  readonly cluster: string;
  /** The agent's address, or its proxy's. */
  readonly source: Endpoint;
  /** The agent's certificate and the intermediate ones (DER), which TLS has verified; empty: it has shown none. */
  readonly chain: readonly Buffer[];
}

/** The way to the servers that have issued other links than this one (server/peers). */
export interface LinkOwners {
  /**
   * Opens a stream to a server that takes it as the connection of an agent. Rejects when no such server is found, or it
   * does not take the connection. `memory` pays for what the stream holds here.
   */
  open(serverId: string, facts: CarriedFacts, signal: AbortSignal, memory: MemoryAccount): Promise<Duplex>;
}

/** Takes a stream from the server `via` as the connection of an agent. Throws a `CulvertError`. */
export type TakeCarried = (stream: Duplex, facts: CarriedFacts, via: string) => void;
