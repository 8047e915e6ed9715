import type { Challenge } from "./challenges.ts";
import type { KerberosClient, LoadKerberos } from "./kerberos.ts";
import type { KerberosTickets } from "./kerberos-tickets.ts";
import type { Authorization, Scheme } from "./scheme.ts";

export interface NegotiateOptions {
  readonly tickets: KerberosTickets;
  readonly load: LoadKerberos;
  readonly signal: AbortSignal;
}

/** Negotiate (RFC 4559) with a Kerberos ticket for `HTTP/proxy-host`: no password leaves this machine. */
export class Negotiate implements Scheme {
  readonly name = "Negotiate";
  readonly #proxyHost: string;
  readonly #options: NegotiateOptions;
  #client: KerberosClient | undefined;

  constructor(proxyHost: string, options: NegotiateOptions) {
    this.#proxyHost = proxyHost;
    this.#options = options;
  }

  /** Rejects where there is no ticket to be had. A challenge without a token begins anew. */
  async authorize({ token = "" }: Challenge): Promise<Authorization> {
    const client = token === "" ? undefined : this.#client;
    const secret = await (client === undefined ? this.#begin(token) : client.step(token));
    return { value: `Negotiate ${secret}`, secret };
  }

  goesOn(challenges: readonly Challenge[]): Challenge | undefined {
    const challenge = negotiateOf(challenges);
    return challenge?.token === undefined ? undefined : challenge;
  }

  /** Many proxies leave their last token out of the answer to a CONNECT; one that is there has to be right. */
  async doubts(challenges: readonly Challenge[]): Promise<string | undefined> {
    const token = negotiateOf(challenges)?.token;
    if (token === undefined || this.#client === undefined || this.#client.contextComplete) return undefined;
    try {
      await this.#client.step(token);
      return this.#client.contextComplete ? undefined : "its last token leaves the exchange open";
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** With a ticket of whoever the ticket cache or the keytab of this process's environment is for. */
  async #begin(token: string): Promise<string> {
    const { tickets, load, signal } = this.#options;
    const kerberos = await load();
    return tickets.take(async () => {
      this.#client = await kerberos.initializeClient(`HTTP@${this.#proxyHost}`, {
        mechOID: kerberos.GSS_MECH_OID_SPNEGO,
      });
      return this.#client.step(token);
    }, signal);
  }
}

export function negotiateOf(challenges: readonly Challenge[]): Challenge | undefined {
  return challenges.find(({ scheme }) => scheme === "negotiate");
}
