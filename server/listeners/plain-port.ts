import type { AddressInfo } from "node:net";
import { LOOPBACK } from "../../shared/address/network.ts";
import { listenError } from "../../shared/config/listen-address.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { plainListener } from "../../shared/listen/listeners.ts";
import { SourceCidrs } from "../clusters/access-rules.ts";
import { acceptRules, type Port, type PortDeps, WORDS } from "./accept-rules.ts";

/** The port that agents come to in clear, from a balancer that has ended their TLS. */
export interface PlainPort extends Port {
  /** Beside loopback, from where connections are taken. */
  readonly trustedCidrs: readonly string[];
  onConnection(connection: IncomingConnection): void;
}

/** Opens the port; rejects with a `ConfigError` that names the flag at fault. */
export async function openPlainPort(
  port: PlainPort,
  deps: PortDeps,
): Promise<{ listener: Acceptor; address: AddressInfo }> {
  const trusted = new SourceCidrs([...LOOPBACK, ...port.trustedCidrs]);
  const listener = plainListener({
    ...acceptRules(port, deps, WORDS.plain),
    admits: (address) => trusted.includes(address),
    onConnection: port.onConnection,
  });
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}
