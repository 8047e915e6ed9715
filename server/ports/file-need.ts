import { fileLimitWarning } from "../../shared/process/file-limit.ts";
import type { ServerOptions } from "../options.ts";

type Bounds = Pick<ServerOptions, "maxHandshakes" | "maxWaitingHandshakes" | "maxWaitingConnections">;

/** How many connections strangers can have on so many TCP ports before their bounds turn them away. */
export function connectionsAllowed(bounds: Bounds, ports: number): number {
  // The first bound counts twice: for who is in a handshake, and for who has not said a word.
  return ports * (2 * bounds.maxHandshakes + bounds.maxWaitingHandshakes + bounds.maxWaitingConnections);
}

/** The warning about a limit of open files that strangers would come up against before those bounds. */
export function fileNeedWarning(bounds: Bounds, ports: number): string | undefined {
  const options = "--max-handshakes, --max-waiting-handshakes and --max-waiting-connections";
  return fileLimitWarning(connectionsAllowed(bounds, ports), options);
}
