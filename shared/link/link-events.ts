import { CloseCode, LinkRefused, parseCloseReason } from "../wire/handshake.ts";
import type { ControlMessage } from "./control.ts";

/** Events of a link, beside those of the consumer of its bytes. */
export interface LinkWatcher {
  /** Control messages for the owner of the link: drain, rotate. */
  onControl?(message: ControlMessage): void;
  /** The carrier is lost; a new one may be given with `resume` or `offer` within `graceMs`. */
  onSuspended?(cause: CarrierLost): void;
  onResumed?(report: ResumeReport): void;
  /** The link is over and takes no carrier any more. */
  onClosed?(): void;
}

/** The offsets at which a new carrier begins. */
export interface ResumeAt {
  /** The offset up to which the peer has received the link: we begin to send there. */
  readonly peerReceived: number;
  /** The offset that we named to the peer as received: the peer begins to send there. */
  readonly named: number;
}

/** The measured pace of a link's line, as far as the line was used. */
export interface LinkPace {
  /** How long the last round of acknowledgements took, with the queues on the way, ms. */
  readonly roundMs: number | undefined;
  /** Bytes a second that were acknowledged in the last round in which there was more to send. */
  readonly sentPerSecond: number | undefined;
  /** Bytes a second that have just arrived. */
  readonly receivedPerSecond: number | undefined;
}

/** For a status. */
export function shownPace({ roundMs, sentPerSecond, receivedPerSecond }: LinkPace) {
  const rounded = (value: number | undefined) => (value === undefined ? null : Math.round(value));
  return {
    roundMs: rounded(roundMs),
    sentPerSecond: rounded(sentPerSecond),
    receivedPerSecond: rounded(receivedPerSecond),
  };
}

export interface ResumeReport {
  /** How long there was no carrier, ms; 0: the old one was still alive. */
  readonly suspendedMs: number;
  /** How the old carrier was lost; `undefined`: it was still alive. */
  readonly lost: CarrierLost | undefined;
  /** Bytes that are sent once more. */
  readonly replayedBytes: number;
}

/** How a carrier was lost: the label of a metric. */
export type LossCause = "fin" | "reset" | "silent" | "closed" | "error";

export interface LossFacts {
  readonly lossCause: LossCause;
  /** How long it had lived, and how long no byte had come before its end, ms: limits that a middlebox may have. */
  readonly ageMs: number;
  readonly idleMs: number;
  readonly cause?: unknown;
}

/** The carrier is gone, and its link may go on with another one. */
export class CarrierLost extends Error implements LossFacts {
  override readonly name = "CarrierLost";
  readonly lossCause: LossCause;
  readonly ageMs: number;
  readonly idleMs: number;

  constructor(message: string, { lossCause, ageMs, idleMs, cause }: LossFacts) {
    super(message, { cause });
    this.lossCause = lossCause;
    this.ageMs = ageMs;
    this.idleMs = idleMs;
  }
}

/** The grace was over before a new carrier came. */
export class LinkLost extends Error {
  override readonly name = "LinkLost";
  readonly graceMs: number;

  constructor(graceMs: number, cause: CarrierLost) {
    super(`no new connection came within ${graceMs / 1_000} s: ${cause.message}`, { cause });
    this.graceMs = graceMs;
  }
}

/** The peer has broken the protocol, or sent more than its bounds allow. */
export class PeerViolation extends Error {
  override readonly name = "PeerViolation";
  /** The close code of this end: `protocolError` where the bytes are no WebSocket frames. */
  readonly closeCode: number | undefined;

  constructor(message: string, closeCode?: number) {
    super(message);
    this.closeCode = closeCode;
  }
}

// ── how a WebSocket ends ────────────────────────────────────────────────────────────────────────────────────────────

/**
 * First word of the close reason of a peer that has nothing more to send, or that gives the link up with a code of
 * WebSocket's own. Without it such a code comes from a middlebox that closes a connection.
 */
export const LINK_ENDED = "link_ended";

/** RFC 6455 §7.1.5: no close frame came, and a close frame without a code. */
export const ABNORMAL_CLOSURE = 1006;
const NO_CODE = 1005;

/** Our own codes (`CloseCode`). Any other may come from balancers and proxies that give up a connection. */
const OURS = { from: 4400, to: 4499 } as const;
/** Our own codes that end a carrier and not its link. */
const OURS_OF_A_CARRIER: ReadonlySet<number> = new Set([CloseCode.silent, CloseCode.superseded]);

/** A connection that ends without a close frame does not tell who ended it. */
const SOMEBODY = "the peer, or something in between,";

/** The meaning of the kernel's error codes for an established connection. */
const CUTS: Readonly<Record<string, string>> = {
  ECONNRESET: `${SOMEBODY} reset it`,
  EPIPE: `${SOMEBODY} had closed it when we wrote`,
  ETIMEDOUT: "what we sent was not acknowledged any more",
  EHOSTUNREACH: "there is no way to the peer any more",
  ENETUNREACH: "there is no way to the peer any more",
};

/** A WebSocket that has closed. */
export interface Closed {
  readonly code: number;
  /** One printable line. */
  readonly reason: string;
  readonly socketError: NodeJS.ErrnoException | undefined;
  /** Our side was closing it cleanly. */
  readonly wasEnding: boolean;
  readonly role: "client" | "server";
}

/** The code and reason in the payload of a close frame (RFC 6455 §5.5.1). */
export function readClose(payload: Buffer): { readonly code: number; readonly reason: Buffer } {
  if (payload.length < 2) return { code: NO_CODE, reason: payload.subarray(0, 0) };
  return { code: payload.readUInt16BE(0), reason: payload.subarray(2) };
}

/** The meaning of a WebSocket's end for its carrier; `undefined`: a clean end. */
export function explainClose(
  { code, reason, socketError, wasEnding, role }: Closed,
  lost: (cause: LossCause, sentence: string) => CarrierLost,
): Error | undefined {
  const isEnd = reason.split(": ", 1)[0] === LINK_ENDED;
  if (code === CloseCode.normal && (wasEnding || isEnd)) return undefined;
  const words = reason === "" ? "" : `: ${reason}`;
  if (code === ABNORMAL_CLOSURE) {
    const cause = socketError?.code;
    if (cause === undefined) return lost("fin", `the connection was cut: ${SOMEBODY} ended it without a word`);
    const how = CUTS[cause] === undefined ? "" : `: ${CUTS[cause]}`;
    return lost(cause === "ECONNRESET" ? "reset" : "error", `the connection was cut${how} (${cause})`);
  }
  const sentence = `the peer closed with ${code}${words}`;
  if (code < OURS.from || code > OURS.to) {
    return isEnd ? new Error(sentence) : lost("closed", sentence);
  }
  if (OURS_OF_A_CARRIER.has(code)) return lost("closed", sentence);
  return role === "client" ? new LinkRefused({ closeCode: code, ...parseCloseReason(reason) }) : new Error(sentence);
}
