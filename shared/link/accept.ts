import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { IncomingConnection } from "../listen/incoming-connection.ts";
import { CloseCode, closeReason, LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";
import { Carrier, type CarrierOptions, WEBSOCKET_BOUNDS } from "./carrier.ts";
import type { Hello, OuterHello, ResumeAnswer, Welcome } from "./control.ts";
import { PeerFault } from "./inner-tls.ts";
import { CarrierLost } from "./link-events.ts";

/** How ws upgrades a request whose WebSocket becomes a carrier. */
export const UPGRADES = {
  perMessageDeflate: false,
  ...WEBSOCKET_BOUNDS,
  clientTracking: false,
  handleProtocols: (offered: ReadonlySet<string>): string | false => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
} as const;

/** Why a carrier is refused whose hello has not come within its time. */
export const NO_HELLO = "no hello arrived in time";

/** RFC 6455 §7.4.1: an unexpected condition at the server. */
const INTERNAL_ERROR = 1011;

// The server's side of the handshake after the upgrade (docs/link-protocol.md): the hello, and the answer to it.

/**
 * The server's end of a carrier. To be called in the turn of the upgrade, and `receiveHello` with it, because the
 * carrier has to read the socket from its first frame on.
 */
export function openCarrier(ws: WebSocket, socket: Duplex, options: Omit<CarrierOptions, "role">): Carrier {
  const carrier = new Carrier(ws, socket, { role: "server", ...options });
  const connection = IncomingConnection.of(socket);
  if (connection !== undefined) connection.onFlood = (sentence) => carrier.fail(CloseCode.ended, sentence);
  return carrier;
}

/**
 * Waits for the hello of a carrier. Rejects with `LinkRefused` if it has refused the carrier, because another message
 * came or none in time, and with `PeerFault` if the carrier has ended.
 */
export function receiveHello(carrier: Carrier, timeoutMs: number): Promise<Hello | OuterHello> {
  return new Promise((resolve, reject) => {
    // At once: what comes behind the hello is for the link.
    const settle = (): void => {
      clearTimeout(timer);
      carrier.onEnded = undefined;
      carrier.onControl = undefined;
    };
    const refuse = (closeCode: CloseCode, reason: string): void => {
      settle();
      const refusal = new LinkRefused({ closeCode, reason });
      refuseHello(carrier, refusal);
      reject(refusal);
    };
    const timer = setTimeout(() => refuse(CloseCode.helloTimeout, NO_HELLO), timeoutMs);
    carrier.onEnded = (reason) => {
      settle();
      const isClosed = reason === undefined || (reason instanceof CarrierLost && reason.lossCause === "closed");
      reject(new PeerFault(isClosed ? new Error("the agent closed before its hello", { cause: reason }) : reason));
    };
    carrier.onControl = (message) => {
      if (message.type !== "hello") {
        refuse(CloseCode.badHello, `expected hello, not ${message.type}`);
        return;
      }
      settle();
      resolve(message);
    };
  });
}

export function answerHello(carrier: Carrier, answer: Welcome | ResumeAnswer): void {
  if (answer.type === "welcome") carrier.setKeepalive(answer.keepaliveMs);
  carrier.sendControl(answer);
}

/** Closes the carrier with the code and the sentence of a refusal; another error is a fault of this server. */
export function refuseHello(carrier: Carrier, error: unknown): void {
  if (error instanceof LinkRefused) carrier.close(error.closeCode ?? CloseCode.badHello, closeReason(error));
  else carrier.close(INTERNAL_ERROR, "internal error");
}

/** Runs the step that decides about a hello. If it throws, the hello is refused. */
export function orRefuse<T>(carrier: Carrier, step: () => T): T {
  try {
    return step();
  } catch (error) {
    refuseHello(carrier, error);
    throw error;
  }
}
