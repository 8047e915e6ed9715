import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { TurnQueue } from "../basics/timers.ts";
import { IncomingConnection } from "../listen/incoming-connection.ts";
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

/** Why a carrier is refused whose hello has not come within its time. */
export const NO_HELLO = "no hello arrived in time";

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
  const connection = IncomingConnection.of(socket);
  if (connection !== undefined) connection.onFlood = (sentence) => carrier.fail(CloseCode.ended, sentence);
  return new Promise((resolve, reject) => {
    // A second hello on the carrier is not answered.
    const settle = (): void => {
      clearTimeout(timer);
      carrier.onEnded = undefined;
      carrier.onControl = undefined;
    };
    const refuse = (error: unknown): void => {
      settle();
      if (error instanceof LinkRefused) carrier.close(error.closeCode ?? CloseCode.badHello, closeReason(error));
      else carrier.close(INTERNAL_ERROR, "internal error");
      reject(error);
    };
    const timer = setTimeout(
      () => refuse(new LinkRefused({ closeCode: CloseCode.helloTimeout, reason: NO_HELLO })),
      options.helloTimeoutMs,
    );
    carrier.onEnded = (reason) => {
      settle();
      const closed = reason === undefined || (reason instanceof CarrierLost && reason.lossCause === "closed");
      reject(closed ? new Error("the agent closed before its hello", { cause: reason }) : reason);
    };
    carrier.onControl = (hello: ControlMessage) => {
      try {
        if (hello.type !== "hello") {
          throw new LinkRefused({ closeCode: CloseCode.badHello, reason: `expected hello, not ${hello.type}` });
        }
        const welcome = options.welcome(hello);
        settle();
        if (welcome?.type === "welcome") carrier.setKeepalive(welcome.keepaliveMs);
        if (welcome !== undefined) carrier.sendControl(welcome);
        resolve({ carrier, hello, welcome });
      } catch (error) {
        refuse(error);
      }
    };
  });
}
