import { X509Certificate } from "node:crypto";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { identityOfChain, type PeerIdentity } from "../../shared/tls/identity.ts";
import { identityRefusal } from "../listeners/authenticate-peer.ts";
import type { CarriedFacts } from "../tunnels/links.ts";
import type { AgentHost } from "./authenticate-agent.ts";

/**
 * The connection of an agent that another server has carried here, as a stream of its link. It may only resume a link.
 */
export class CarriedConnection extends IncomingConnection<AgentHost> {
  /** The server that carries it. */
  readonly via: string;
  readonly chain: CarriedFacts["chain"];

  constructor(stream: Duplex, host: AgentHost, { source, chain }: CarriedFacts, via: string) {
    super(stream as Socket); // what reads and writes it uses no more of a socket than a Duplex has
    this.client = source;
    this.host = host;
    this.via = via;
    this.chain = chain;
    this.handedOn(this.raw);
  }

  override get remote(): string {
    return `${super.remote} (carried by server "${this.via}")`;
  }
}

/**
 * Verifies the certificate of an agent whose TLS handshake another server has done: by this server's CA, CRLs and
 * identities, and its dates. Throws as `verifyCertificate` does.
 */
export function verifyCarried(
  { chain }: Pick<CarriedConnection, "chain">,
  rules: Pick<AgentHost, "trust" | "crlFault" | "identities" | "rule">,
): PeerIdentity {
  if (chain.length === 0) {
    const sentence = "the agent has shown no client certificate to the server that carries its connection";
    throw new CulvertError("unauthenticated", sentence, { fault: "certificate_missing" });
  }
  const identity = readIdentity(chain);
  const now = new Date();
  if (chain.some((der) => !isInTime(new X509Certificate(der), now))) {
    throw refusal("has expired, or is not valid yet, by the clock of the server that has the link");
  }
  // Without a time: an expired CRL is a fault of this server, and `crlFault` says so.
  const status = rules.trust.status(chain);
  if (status === "untrusted") throw refusal("is not signed by a CA that is accepted here");
  const fault = rules.crlFault(identity);
  if (fault !== undefined) throw refusal(fault);
  const refused = identityRefusal(identity, "agent", rules);
  if (refused !== undefined) throw refused;
  return identity;
}

function readIdentity(chain: CarriedFacts["chain"]): PeerIdentity {
  try {
    return identityOfChain(chain);
  } catch (error) {
    throw refusal((error as Error).message);
  }
}

function isInTime({ validFrom, validTo }: X509Certificate, now: Date): boolean {
  return new Date(validFrom) <= now && now <= new Date(validTo);
}

function refusal(why: string): CulvertError {
  return new CulvertError("unauthenticated", `the client certificate ${why}`);
}
