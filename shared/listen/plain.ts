import type { Socket } from "node:net";
import { Acceptor, type AcceptRules } from "./acceptor.ts";

export interface PlainListenerOptions extends AcceptRules {
  /** May this address come at all? Others are cut at once. */
  admits(address: string): boolean;
  /** It may speak now. The socket has an error listener, and its first bytes are still to be read. */
  onOpen(socket: Socket, backInMs: number | undefined): void;
}

/** A TCP listener for HTTP in clear, with the bounds and the order of those that speak TLS. */
export function plainListener(options: PlainListenerOptions): Acceptor {
  const acceptor: Acceptor = new Acceptor(options, {
    begins: "HTTP request",
    readsName: () => false,
    lastWord: undefined,
    admits: (address) => options.admits(address),
    onTurn: (connection) => {
      const { raw, backInMs } = connection;
      acceptor.over(connection);
      acceptor.handOn(connection, raw);
      options.onOpen(raw, backInMs);
    },
  });
  return acceptor;
}
