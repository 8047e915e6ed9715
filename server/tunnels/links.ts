import { randomUUID } from "node:crypto";
import type { Hello, ProvenResume } from "../../shared/link/control.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { ResumeTokens } from "../../shared/link/resume-tokens.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { Candidate } from "./admit.ts";
import type { Credential } from "./credential.ts";

/** What a resume asks of a link. */
export type HeldLink = Pick<Link, "received" | "canResumeAt" | "offer">;

/** A link that may get another carrier, and who may give it one. */
export interface ResumableLink {
  readonly id: string;
  readonly cluster: string;
  readonly owner: Candidate;
  readonly tokens: ResumeTokens;
  /** There from its first carrier on. */
  link: HeldLink | undefined;
  /** Under inner TLS: what a resume is proved by, in place of a token; and until when its credential is good. */
  key: LinkKey | undefined;
  goodUntil: Date | undefined;
  /** Its owner was admitted once more with this. */
  onCredential: ((credential: Credential) => void) | undefined;
}

/** The links that this server has issued and that are not over. */
export class Links {
  readonly #serverId: string;
  readonly #links = new Map<string, ResumableLink>();

  constructor(serverId: string) {
    this.#serverId = serverId;
  }

  get size(): number {
    return this.#links.size;
  }

  /** A name that tells every server whose link it is. */
  issue(cluster: string, owner: Candidate): ResumableLink {
    const id = `${this.#serverId}/${randomUUID()}`;
    const entry: ResumableLink = {
      id,
      cluster,
      owner,
      tokens: new ResumeTokens(),
      link: undefined,
      key: undefined,
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
   * The link that a hello asks to go on with, or `LinkRefused` with a code of its own for each thing that disagrees. The
   * link is left as it is until the new carrier is there.
   */
  judge(cluster: string, { agentId, instance, resume }: Hello, identity: string): ResumableLink | undefined {
    if (resume === undefined) return undefined;
    const entry = this.#links.get(resume.link);
    // Another cluster's is as if it were not there: its CA may give the same names to others.
    if (entry?.link === undefined || entry.cluster !== cluster) throw this.#unknown(resume.link);
    const { tokens, link } = entry;
    mustOwn(entry, { agentId, instance, identity });
    if (!tokens.accepts(resume.token)) throw refusal("badToken", "this is not the token of the link, or not any more");
    if (!link.canResumeAt(resume.received)) throw badOffset(resume.received);
    return entry;
  }

  /**
   * The same for a carrier of which nothing is known: that it is the link's own agent says the key, which comes out of the
   * inner TLS. It renews no credential, so it is worth nothing when that has ended.
   */
  judgeProof(
    cluster: string,
    resume: ProvenResume,
  ): ResumableLink & { readonly link: HeldLink; readonly key: LinkKey } {
    const entry = this.#links.get(resume.link);
    if (entry?.link === undefined || entry.cluster !== cluster) throw this.#unknown(resume.link);
    const { link, key, goodUntil } = entry;
    if (key?.accepts(resume) !== true) throw refusal("badToken", "this is no proof for the link, or not any more");
    if (goodUntil !== undefined && goodUntil < new Date()) {
      throw refusal("unknownLink", "the certificate by which this link was opened has expired");
    }
    if (!link.canResumeAt(resume.received)) throw badOffset(resume.received);
    return Object.assign(entry, { link, key });
  }

  /** The link whose owner has come through another inner TLS, to prove anew that it is he. */
  judgeRenewal(cluster: string, id: string, { agentId, instance, identity }: Candidate): ResumableLink {
    const entry = this.#links.get(id);
    if (entry === undefined || entry.cluster !== cluster) throw this.#unknown(id);
    mustOwn(entry, { agentId, instance, identity });
    return entry;
  }

  #unknown(id: string): LinkRefused {
    const isOurs = id.startsWith(`${this.#serverId}/`);
    if (isOurs) return refusal("unknownLink", `server "${this.#serverId}" has no such link any more`);
    return refusal("foreignLink", `this is server "${this.#serverId}", and the link is another server's`);
  }
}

function mustOwn({ owner }: ResumableLink, { agentId, instance, identity }: Candidate): void {
  if (owner.identity === identity && owner.agentId === agentId && owner.instance === instance) return;
  throw refusal("linkOfAnother", "this link belongs to another agent: its certificate, id or process is another one");
}

function badOffset(received: number): LinkRefused {
  return refusal("badOffset", `the link cannot go on at byte ${received}: it is not kept, or was never sent`);
}

function refusal(code: keyof typeof CloseCode, reason: string): LinkRefused {
  return new LinkRefused({ closeCode: CloseCode[code], reason });
}
