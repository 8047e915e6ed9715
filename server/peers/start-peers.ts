import { CARRIER_KIND } from "../../shared/wire/carrier-head.ts";
import { CarriedStreams, type CarriedStreamsDeps } from "./carried-streams.ts";
import type { Directory, Location } from "./directory.ts";
import { NatsDirectory } from "./nats-directory.ts";
import { Peers, type PeersDeps } from "./peers.ts";

export interface StartPeersDeps
  extends Omit<PeersDeps, "openDirectory" | "handlers">,
    Pick<CarriedStreamsDeps, "takeCarried"> {
  /** In place of the directory of `--directory`. */
  readonly openDirectory: ((location: Location) => Directory) | undefined;
}

/** Opens the port for peers, and the directory of the options. Rejects with a `ConfigError`. */
export function startPeers(deps: StartPeersDeps): Promise<Peers> {
  const openDirectory = deps.openDirectory ?? ((location: Location) => new NatsDirectory(location, deps));
  const carried = new CarriedStreams(deps);
  return Peers.start({ ...deps, openDirectory, handlers: new Map([[CARRIER_KIND, carried.serve]]) });
}
