import { isIP, type Socket } from "node:net";
import type { Target } from "../address/target.ts";
import { deferred, untilAborted } from "../basics/promises.ts";
import { NAMES } from "../names/lookup.ts";
import { AddressRace } from "./address-race.ts";

/** A connection that was not open when its time was over, or when nobody wanted it any more. */
export class ConnectAborted extends Error {
  /** Whether the name had resolved. */
  readonly isResolved: boolean;
  /** `AddressRace.causes`, or that the name has not resolved. */
  readonly causes: string;

  constructor(isResolved: boolean, causes: string) {
    const shown = isResolved ? causes : "its name did not resolve";
    super(`no answer in time${shown === "" ? "" : ` (${shown})`}`);
    this.isResolved = isResolved;
    this.causes = shown;
  }
}

/**
 * Opens a TCP connection to the first address of a name that answers. The socket has an error listener. Rejects with
 * the error of the resolver or of `AddressRace`, and with `ConnectAborted`.
 */
export async function connectTcp({ host, port }: Target, signal: AbortSignal): Promise<Socket> {
  const family = isIP(host);
  let race: AddressRace | undefined;
  const connected = deferred<Socket>();
  try {
    const addresses = family === 0 ? await untilAborted(NAMES.find(host), signal) : [{ address: host, family }];
    const { resolve: onConnected, reject: onFailed } = connected;
    race = new AddressRace(addresses, { port, socket: { noDelay: true }, onConnected, onFailed });
    return await untilAborted(connected.promise, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    race?.destroy();
    // It may have connected in the same moment.
    void connected.promise.then(
      (socket) => socket.destroy(),
      () => {},
    );
    throw new ConnectAborted(race !== undefined || family !== 0, race?.causes ?? "");
  }
}
