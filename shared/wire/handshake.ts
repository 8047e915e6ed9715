import { CREDENTIAL_FAULTS, type CredentialFault, credentialFault } from "../outcomes.ts";

/** Constants of the handshake between agent and server (docs/link-protocol.md). */

/** The default path of upgrades at a server. */
export const TUNNEL_PATH = "/culvert/v1/tunnel";

/** The WebSocket subprotocol that both ends must name (RFC 6455 §1.9). */
export const SUBPROTOCOL = "culvert.v1";

/**
 * The header of an upgrade that names the link which its hello will resume. A server that did not issue the link can so
 * find the one that did before it answers; a server without peers ignores it.
 */
export const LINK_HEADER = "culvert-link";

/** The product name of `culvert doctor` in a hello and in a User-Agent (RFC 9110 §10.1.5). */
export const DOCTOR = "culvert-doctor";

/** The version of the protocol. docs/versions.md says what raises it and which peers of another version are served. */
export const HANDSHAKE_VERSION = 1;

/**
 * Features of this program beyond its protocol version. Both ends name their words in hello and welcome, and use only
 * words that both have named; other words are ignored. Each kind of streams that agents open is a feature.
 */
export const FEATURES = ["destination"] as const;

/** The features that both ends have named. */
export function agreedFeatures(named: readonly string[] = [], own: readonly string[] = FEATURES): ReadonlySet<string> {
  return new Set(own.filter((feature) => named.includes(feature)));
}

/**
 * Why a WebSocket was closed. Our own codes are 4400–4499 (RFC 6455 §7.4.2 leaves 4000–4999 to applications), with
 * the last digits of the HTTP status that comes nearest, or from 4450 on where none does.
 */
export const CloseCode = {
  normal: 1000,
  protocolError: 1002,
  badHello: 4400,
  unauthenticated: 4401,
  forbidden: 4403,
  /** This server issued the link, which is over: the agent opens a new one at once. */
  unknownLink: 4404,
  helloTimeout: 4408,
  alreadyConnected: 4409,
  duplicate: 4410,
  /** Another server issued the link, which may still be reached through the same balancer. */
  foreignLink: 4421,
  limited: 4429,
  badControl: 4450,
  silent: 4451,
  draining: 4452,
  /** The proof of a resume is wrong, or was used before. */
  badProof: 4453,
  /** The link belongs to another credential, agent id or process. */
  linkOfAnother: 4454,
  badOffset: 4455,
  /** The link has a newer carrier. */
  superseded: 4456,
  /** The peer has given the link up, so there is nothing to resume. */
  ended: 4457,
} as const;
export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];

const CLOSE_REASON = new RegExp(`^(?:(${CREDENTIAL_FAULTS.join("|")}): )?(.*)$`, "s");

interface ReasonParts {
  readonly fault?: CredentialFault | undefined;
  readonly reason: string;
}

/** The reason of a close frame: a credential fault comes first, so that no cut of a long sentence removes it. */
export function closeReason({ fault, reason }: ReasonParts): string {
  return fault === undefined ? reason : `${fault}: ${reason}`;
}

/** Parses what `closeReason` wrote. */
export function parseCloseReason(text: string): ReasonParts {
  const [, fault, reason = ""] = CLOSE_REASON.exec(text) ?? [];
  return { fault: credentialFault(fault), reason };
}

interface Refusal extends ReasonParts {
  readonly status?: number | undefined;
  readonly closeCode?: number | undefined;
  readonly retryAfterMs?: number | undefined;
  /** A note of this end beside the server's reason. */
  readonly note?: string;
}

/** The server refused, before the upgrade (an HTTP status) or after it (a close code), with a reason for a person. */
export class LinkRefused extends Error {
  override readonly name = "LinkRefused";
  readonly status: number | undefined;
  readonly closeCode: number | undefined;
  readonly reason: string;
  readonly fault: CredentialFault | undefined;
  /** When the server asks the agent to come back, ms. */
  readonly retryAfterMs: number | undefined;

  constructor({ status, closeCode, reason, note = "", fault, retryAfterMs }: Refusal) {
    super(`the server refused the tunnel (${status ?? closeCode}): ${reason}${note}`);
    this.status = status;
    this.closeCode = closeCode;
    this.reason = reason;
    this.fault = fault;
    this.retryAfterMs = retryAfterMs;
  }
}

/** The code before the reason where this very process has a tunnel to the server that refuses another one. */
export const ALREADY_CONNECTED = "already_connected";

/** The agent has a tunnel to this server already. The same close code refuses another process of its id. */
export function isAlreadyConnected(error: unknown): boolean {
  if (!(error instanceof LinkRefused)) return false;
  return error.closeCode === CloseCode.alreadyConnected && error.reason.split(": ", 1)[0] === ALREADY_CONNECTED;
}
