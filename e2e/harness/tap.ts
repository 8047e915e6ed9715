import { connect, type Socket } from "node:net";
import type { CallerListener } from "./caller.ts";
import { peerEnd } from "./peer-end.ts";
import { tcpTarget } from "./targets/tcp.ts";

/**
 * Stands before a TCP listener for one connection, and shows the bytes beneath TLS that the listener sends. Callers go
 * to the listener that is returned.
 */
export async function tapBefore(listener: CallerListener) {
  if ("path" in listener) throw new Error("a unix socket has no bytes beneath TLS");
  const { host, port } = listener;
  let onEnded: (how: Promise<string>) => void = () => {};
  const tap = {
    /** The listener's side. */
    back: undefined as Socket | undefined,
    /** Bytes that the listener has sent. */
    received: 0,
    /** How the listener ended the connection. */
    ended: new Promise<string>((resolve) => {
      onEnded = resolve;
    }),
    [Symbol.asyncDispose]: () => target[Symbol.asyncDispose](),
  };
  const target = await tcpTarget((front) => {
    const back = connect({ host, port, allowHalfOpen: true, noDelay: true });
    target.track(back);
    tap.back = back;
    onEnded(peerEnd(back));
    front.on("error", () => back.resetAndDestroy());
    back.on("error", () => front.resetAndDestroy());
    back.on("data", (chunk: Buffer) => {
      tap.received += chunk.length;
    });
    front.pipe(back).pipe(front);
  });
  return { tap, listener: { ...listener, port: target.port } };
}
