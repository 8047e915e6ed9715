import type { Duplex } from "node:stream";

/**
 * Passes a socket's chunks to `take` until it returns a result, then pauses the socket and unshifts the rest. Both
 * happen in one turn of the event loop, because nothing can be unshifted once the end of the stream was emitted.
 */
export function readUntil<T>(
  socket: Duplex,
  take: (chunk: Buffer) => { readonly found: T; readonly rest: Buffer } | undefined,
): Promise<{ readonly found?: T; readonly error?: NodeJS.ErrnoException | undefined }> {
  return new Promise((resolve, reject) => {
    let failure: Error | undefined;
    if (socket.destroyed || socket.readableEnded) {
      resolve({});
      return;
    }
    socket.on("data", onData);
    socket.on("error", onError);
    socket.on("end", onEnd);
    socket.on("close", onEnd);
    socket.resume();

    function onData(chunk: Buffer): void {
      try {
        const taken = take(chunk);
        if (taken === undefined) return;
        release();
        if (taken.rest.length > 0) socket.unshift(taken.rest);
        resolve({ found: taken.found });
      } catch (error) {
        release();
        reject(error);
      }
    }

    function onError(error: Error): void {
      failure = error;
    }

    function onEnd(): void {
      release();
      resolve({ error: failure });
    }

    function release(): void {
      socket.pause();
      socket.off("data", onData);
      socket.off("error", onError);
      socket.off("end", onEnd);
      socket.off("close", onEnd);
    }
  });
}
