import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { TLSSocket } from "node:tls";
import type { ProvenResume } from "./control.ts";

/** RFC 5705 §4: labels that no RFC defines begin with EXPORTER-. */
const EXPORTER_LABEL = "EXPORTER-culvert-resume";
const KEY_BYTES = 32;

/**
 * Proves that a new carrier belongs to the agent of a link (docs/link-protocol.md, "Loss"). Both ends hold
 * the key. Each attempt of the agent has a higher counter than all before it, so a recorded hello is worth nothing
 * later, and an answer that is lost costs nothing.
 */
export class LinkKey {
  readonly #key: Buffer;
  /** At the agent the counter of its last attempt, at the server the highest one that it accepted. */
  #counter = 0;

  /** A new key, which the server sends in its first welcome. */
  static random(): LinkKey {
    return new LinkKey(randomBytes(KEY_BYTES));
  }

  /** The key in a welcome. */
  static parse(text: string): LinkKey {
    return new LinkKey(Buffer.from(text, "base64url"));
  }

  /**
   * Both ends get the same key from their end of a TLS connection after its handshake (RFC 8446 §7.5); nobody sends it.
   */
  static of(socket: TLSSocket): LinkKey {
    return new LinkKey(socket.exportKeyingMaterial(KEY_BYTES, EXPORTER_LABEL, Buffer.alloc(0)));
  }

  constructor(key: Buffer) {
    this.#key = key;
  }

  /** As `parse` takes it. A secret: it goes into a welcome and nowhere else. */
  get text(): string {
    return this.#key.toString("base64url");
  }

  // ── the agent ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** The resume in the hello of the next attempt. */
  prove({ link, received }: { readonly link: string; readonly received: number }): ProvenResume {
    this.#counter++;
    const counter = this.#counter;
    return { link, counter, received, proof: this.#mac("hello", link, counter, received).toString("base64url") };
  }

  /** Whether the server of this link answered the last attempt. */
  isAnswer(link: string, { received, proof }: { readonly received: number; readonly proof: string }): boolean {
    return this.#fits(proof, "resumed", link, this.#counter, received);
  }

  // ── the server ─────────────────────────────────────────────────────────────────────────────────────────────────

  accepts({ link, counter, received, proof }: ProvenResume): boolean {
    return this.#fits(proof, "hello", link, counter, received) && counter > this.#counter;
  }

  /** The resume was accepted: its counter and those before it are used up. */
  spend({ counter }: ProvenResume): void {
    this.#counter = Math.max(this.#counter, counter);
  }

  /** Proves to the agent that its server answers, and how much the server has received. */
  answer({ link, counter }: ProvenResume, received: number): string {
    return this.#mac("resumed", link, counter, received).toString("base64url");
  }

  #fits(proof: string, ...signed: [side: string, link: string, counter: number, received: number]): boolean {
    const shown = Buffer.from(proof, "base64url");
    const expected = this.#mac(...signed);
    return shown.length === expected.length && timingSafeEqual(shown, expected);
  }

  #mac(...signed: [side: string, link: string, counter: number, received: number]): Buffer {
    return createHmac("sha256", this.#key).update(JSON.stringify(signed)).digest();
  }
}
