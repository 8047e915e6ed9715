import { createHmac, timingSafeEqual } from "node:crypto";
import type { TLSSocket } from "node:tls";
import type { ProvenResume } from "./control.ts";

/** RFC 5705 §4: labels that are no RFC's begin with EXPORTER-. */
const EXPORTER_LABEL = "EXPORTER-culvert-resume";
const KEY_BYTES = 32;

/**
 * What gives a link under inner TLS its next carrier (design: "Link and resumption"). The key comes out of the inner
 * handshake and never travels; each try of the agent has a higher counter than all before. So whoever has seen every
 * message of the past can make none of the future.
 */
export class LinkKey {
  readonly #key: Buffer;
  /** The agent: of the last try. The server: the highest that was accepted. */
  #counter = 0;

  /** Both ends get the same one from the two ends of a TLS connection (RFC 8446 §7.5), after its handshake. */
  static of(socket: TLSSocket): LinkKey {
    return new LinkKey(socket.exportKeyingMaterial(KEY_BYTES, EXPORTER_LABEL, Buffer.alloc(0)));
  }

  constructor(key: Buffer) {
    this.#key = key;
  }

  // ── the agent ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** The words of the next try. */
  prove(link: string, received: number): ProvenResume {
    this.#counter++;
    const counter = this.#counter;
    return { link, counter, received, proof: this.#mac("hello", link, counter, received).toString("base64url") };
  }

  /** Did the server of this link answer the last try? */
  isAnswer(link: string, { received, proof }: { readonly received: number; readonly proof: string }): boolean {
    return this.#fits(proof, "resumed", link, this.#counter, received);
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────────────────────────

  accepts({ link, counter, received, proof }: ProvenResume): boolean {
    return this.#fits(proof, "hello", link, counter, received) && counter > this.#counter;
  }

  /** The resume has been accepted: this counter and those before it are used up. */
  spend({ counter }: ProvenResume): void {
    this.#counter = Math.max(this.#counter, counter);
  }

  /** That it is the server which names what it has. */
  answer({ link, counter }: ProvenResume, received: number): string {
    return this.#mac("resumed", link, counter, received).toString("base64url");
  }

  #fits(proof: string, ...words: [side: string, link: string, counter: number, received: number]): boolean {
    const shown = Buffer.from(proof, "base64url");
    const due = this.#mac(...words);
    return shown.length === due.length && timingSafeEqual(shown, due);
  }

  #mac(...words: [side: string, link: string, counter: number, received: number]): Buffer {
    return createHmac("sha256", this.#key).update(JSON.stringify(words)).digest();
  }
}
