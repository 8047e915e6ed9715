import type { Challenge } from "./challenges.ts";
import { type KerberosClient, KerberosMissing, type KerberosTickets } from "./kerberos.ts";
import { type AuthContext, type AuthExchange, type Authorization, type AuthScheme, NoCredentials } from "./scheme.ts";

/** Negotiate (RFC 4559) with a Kerberos ticket for `HTTP/proxy-host`. No password leaves this machine. */
export const NEGOTIATE: AuthScheme = {
  name: "Negotiate",
  sends: "ticket",
  refused:
    "refuses the Kerberos ticket (Negotiate): check that the proxy's host name is the one of its service principal, that both clocks are right, and that the user may use it",

  pick: negotiateOf,

  async begin(context) {
    if (context.isUnverified) throw new NoCredentials();
    const { tickets } = context;
    if (tickets === undefined) throw new NoCredentials("Kerberos is not set up here");
    return new NegotiateExchange({ ...context, tickets });
  },
};

/** A library's message may contain long names and paths. */
const MAX_MESSAGE = 200;
/** The library's own message is the same for all of these causes: it cannot find mechanisms to negotiate. */
const NO_TICKET =
  "there is no Kerberos ticket for it: run kinit, or name a keytab in KRB5_CLIENT_KTNAME; with one of them, check that it is still good, that the proxy is called by the name of its service, and krb5.conf";

type KerberosContext = AuthContext & { readonly tickets: KerberosTickets };

class NegotiateExchange implements AuthExchange {
  readonly #context: KerberosContext;
  #client: KerberosClient | undefined;

  constructor(context: KerberosContext) {
    this.#context = context;
  }

  /** A challenge without a token begins a new exchange of tokens. */
  async authorize({ token = "" }: Challenge): Promise<Authorization> {
    const client = token === "" ? undefined : this.#client;
    const secret = await (client === undefined ? this.#requestTicket(token) : client.step(token));
    return { value: `Negotiate ${secret}`, secret };
  }

  next(challenges: readonly Challenge[]): Challenge | undefined {
    const challenge = negotiateOf(challenges);
    return challenge?.token === undefined ? undefined : challenge;
  }

  /** Many proxies send no last token with their 2xx. If there is one, it must be valid. */
  async verify(challenges: readonly Challenge[]): Promise<string | undefined> {
    const token = negotiateOf(challenges)?.token;
    if (token === undefined || this.#client === undefined || this.#client.contextComplete) return undefined;
    try {
      await this.#client.step(token);
      return this.#client.contextComplete ? undefined : "its last token leaves the exchange open";
    } catch (error) {
      return (error as Error).message;
    }
  }

  /** The ticket is for the principal of the ticket cache or the keytab in this process's environment. */
  async #requestTicket(token: string): Promise<string> {
    const { proxyHost, tickets, loadKerberos, signal } = this.#context;
    try {
      const kerberos = await loadKerberos();
      const options = { mechOID: kerberos.GSS_MECH_OID_SPNEGO };
      return await tickets.take(async () => {
        this.#client = await kerberos.initializeClient(`HTTP@${proxyHost}`, options);
        return this.#client.step(token);
      }, signal);
    } catch (error) {
      signal.throwIfAborted();
      const { message } = error as Error;
      const isMissing = error instanceof KerberosMissing;
      const reason = isMissing ? message : `${NO_TICKET} (GSS-API says: ${message.slice(0, MAX_MESSAGE)})`;
      throw new NoCredentials(reason, { cause: error });
    }
  }
}

function negotiateOf(challenges: readonly Challenge[]): Challenge | undefined {
  return challenges.find(({ scheme }) => scheme === "negotiate");
}
