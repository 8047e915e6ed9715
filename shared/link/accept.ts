import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { TurnQueue } from "../basics/timers.ts";
import { CloseCode, closeReason, LinkRefused, SUBPROTOCOL } from "../wire/handshake.ts";
import { Carrier, WEBSOCKET_BOUNDS } from "./carrier.ts";
import type { ControlMessage, Hello, OuterHello, ResumeAnswer, Welcome } from "./control.ts";
import { CarrierLost } from "./link-events.ts";

/** How ws upgrades a request whose WebSocket becomes a carrier. */
export const UPGRADES = {
  perMessageDeflate: false,
  ...WEBSOCKET_BOUNDS,
  clientTracking: false,
  handleProtocols: (offered: ReadonlySet<string>): string | false => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
} as const;

export interface AcceptOptions {
  /** Time for the hello to arrive, ms. */
  readonly helloTimeoutMs: number;
  readonly keepaliveMs: number;
  /** See `CarrierOptions`. */
  readonly onClosing?: () => void;
  /** The queue in which hellos wait, because thousands may arrive at once. */
  readonly turns: TurnQueue;
  /**
   * Answers the hello, or leaves that to the inner TLS; throws `LinkRefused` with a close code to refuse. Called at
   * most once.
   */
  welcome(hello: Hello | OuterHello): Welcome | ResumeAnswer | undefined;
}

/** A carrier whose hello was not refused. */
export interface Accepted {
  readonly carrier: Carrier;
  readonly hello: Hello | OuterHello;
  readonly welcome: Welcome | ResumeAnswer | undefined;
}

/** RFC 6455 §7.4.1: an unexpected condition at the server. */
const INTERNAL_ERROR = 1011;

/**
 * The server's side of the handshake after the upgrade: it receives the hello and sends the answer
 * (docs/link-protocol.md). To be called in the turn of the upgrade, because the carrier has to read the socket from its
 * first frame on.
 */
export function acceptCarrier(ws: WebSocket, socket: Duplex, options: AcceptOptions): Promise<Accepted> {
  const carrier = new Carrier(ws, socket, {
    role: "server",
    keepaliveMs: options.keepaliveMs,
    onClosing: options.onClosing,
    turns: options.turns,
  });
  return new Promise((resolve, reject) => {
    // A second hello on the carrier is not answered.
    const settle = (): void => {
      clearTimeout(timer);
      carrier.onEnded = undefined;
      carrier.onControl = undefined;
    };
    const refuse = (code: number, error: Error, reason = error.message): void => {
      settle();
      carrier.close(code, reason);
      reject(error);
    };
    const refuseFor = (closeCode: number, reason: string): void =>
      refuse(closeCode, new LinkRefused({ closeCode, reason }), reason);
    const timer = setTimeout(
      () => refuseFor(CloseCode.helloTimeout, "no hello arrived in time"),
      options.helloTimeoutMs,
    );
    carrier.onEnded = (reason) => {
      settle();
      const closed = reason === undefined || (reason instanceof CarrierLost && reason.lossCause === "closed");
      reject(closed ? new Error("the agent closed before its hello", { cause: reason }) : reason);
    };
    carrier.onControl = (message: ControlMessage) => {
      if (message.type === "hello") answer(message);
      else refuseFor(CloseCode.badHello, `expected hello, not ${message.type}`);
    };
    const answer = (hello: Hello | OuterHello): void => {
      try {
        const welcome = options.welcome(hello);
        settle();
        if (welcome !== undefined) {
          if (welcome.type === "welcome") carrier.setKeepalive(welcome.keepaliveMs);
          carrier.sendControl(welcome);
        }
        resolve({ carrier, hello, welcome });
      } catch (error) {
        if (error instanceof LinkRefused) refuse(error.closeCode ?? CloseCode.badHello, error, closeReason(error));
        else refuse(INTERNAL_ERROR, error as Error, "internal error");
      }
    };
  });
}
