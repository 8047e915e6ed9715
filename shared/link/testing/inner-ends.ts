import { type HandshakeSource, UNLIMITED } from "../../listen/handshake-budget.ts";
import { Authority } from "../../pki/certificates.ts";
import type { TransportConsumer } from "../../yamux/transport.ts";
import type { InnerLink } from "../inner-pipe.ts";
import { dialInner, type InnerDialOptions, type InnerTls } from "../inner-tls.ts";

/** One end of a link in memory: what is written arrives at the other in a later turn. */
export class End implements InnerLink {
  other: End | undefined;
  pendingBytes = 0;
  publicReason: string | undefined;
  #consumer: TransportConsumer | undefined;
  #early: Buffer[] = [];
  #over = false;

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    for (const chunk of this.#early.splice(0)) consumer.onBytes(chunk);
  }

  room(): number {
    return 1_000;
  }

  wholeRecords(_at: number, most: number): number {
    return most;
  }

  write(batch: readonly Buffer[]): void {
    for (const chunk of batch) setImmediate(() => this.other?.receive(chunk));
  }

  receive(chunk: Buffer): void {
    if (this.#consumer === undefined) this.#early.push(chunk);
    else if (!this.#over) this.#consumer.onBytes(chunk);
  }

  end(): void {
    setImmediate(() => {
      this.other?.close(undefined);
      this.close(undefined);
    });
  }

  destroy(reason?: Error, publicReason?: string): void {
    this.publicReason ??= publicReason;
    this.close(reason);
    setImmediate(() => this.other?.close(new Error("the peer has ended the link")));
  }

  close(reason: Error | undefined): void {
    if (this.#over) return;
    this.#over = true;
    this.#consumer?.onClosed(reason);
  }
}

export function link(): { readonly agent: End; readonly server: End } {
  const [agent, server] = [new End(), new End()];
  agent.other = server;
  server.other = agent;
  return { agent, server };
}

/** A cluster's CA, an agent's certificate, and what the server shows and trusts as "server.example". */
export async function pki() {
  const authority = await Authority.create("ca");
  const leaf = await authority.issue({ cn: "server", names: ["server.example"], usage: "server" });
  const agent = await authority.issue({ cn: "agent", usage: "client" });
  const material = { ...leaf, ca: authority.cert, notAfter: new Date() };
  return { authority, agent, material };
}

/** Time for a handshake, ms. */
export const TIMEOUT_MS = 5_000;

/** Where agents come from. */
export const SOURCE: HandshakeSource = { network: "192.0.2.1", budget: UNLIMITED };

/** Dials inner TLS as an agent does. */
export function dial(
  end: End,
  tls: InnerDialOptions["tls"],
  change: Partial<InnerDialOptions> = {},
): Promise<InnerTls> {
  const { signal } = new AbortController();
  return dialInner(end, { host: "server.example", tls, timeoutMs: TIMEOUT_MS, signal, ...change });
}
