import type { Challenge } from "./challenges.ts";
import type { KerberosClient, LoadKerberos } from "./kerberos.ts";
import type { Authorization, Scheme } from "./scheme.ts";

export interface NegotiateOptions {
  /** File with the keys of the principal; absent: the ticket cache of the process (kinit), or `KRB5_CLIENT_KTNAME`. */
  readonly keytab?: string | undefined;
  /** Absent: the only one, or the first, there is. */
  readonly principal?: string | undefined;
}

/** Negotiate (RFC 4559) with a Kerberos ticket for `HTTP/proxy-host`: no password leaves this machine. */
export class Negotiate implements Scheme {
  readonly name = "Negotiate";
  readonly #proxyHost: string;
  readonly #options: NegotiateOptions;
  readonly #load: LoadKerberos;
  #client: KerberosClient | undefined;

  constructor(proxyHost: string, options: NegotiateOptions, load: LoadKerberos) {
    this.#proxyHost = proxyHost;
    this.#options = options;
    this.#load = load;
  }

  /** Rejects where there is no ticket to be had. A challenge without a token begins anew. */
  async authorize({ token }: Challenge): Promise<Authorization> {
    if (token === undefined || this.#client === undefined) this.#client = await this.#begin();
    const secret = await this.#client.step(token ?? "");
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

  async #begin(): Promise<KerberosClient> {
    const kerberos = await this.#load();
    const { keytab, principal } = this.#options;
    if (keytab !== undefined) useKeytab(keytab);
    return kerberos.initializeClient(`HTTP@${this.#proxyHost}`, {
      ...(principal === undefined ? {} : { principal }),
      mechOID: kerberos.GSS_MECH_OID_SPNEGO,
    });
  }
}

export function negotiateOf(challenges: readonly Challenge[]): Challenge | undefined {
  return challenges.find(({ scheme }) => scheme === "negotiate");
}

/**
 * The library takes a keytab from its environment only, which is the whole process's. Tickets got by it stay in memory,
 * where no read-only file system stands in their way, unless somebody has said where they belong.
 */
function useKeytab(keytab: string): void {
  process.env["KRB5_CLIENT_KTNAME"] = `FILE:${keytab}`;
  process.env["KRB5CCNAME"] ??= "MEMORY:culvert";
}
