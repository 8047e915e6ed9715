import type { AddressInfo } from "node:net";
import type { SecureVersion, TLSSocket } from "node:tls";
import { ConfigError } from "../../shared/config/options.ts";
import { TlsListener, type VirtualHost, type VirtualHosts } from "../../shared/listen/tls.ts";
import { listenError } from "../../shared/runtime/listen-error.ts";
import { acceptRules, type Port, type PortDeps, WORDS } from "./accept-rules.ts";

/** One of the ports that callers and agents come to over TLS. */
export interface TlsPort<Door extends VirtualHost> extends Port {
  readonly name: "callers" | "agents";
  readonly doors: VirtualHosts<Door>;
  /** `backInMs`: there are too many; tell this one to come back after so long. */
  onSecure(socket: TLSSocket, door: Door, backInMs: number | undefined): void;
}

/** Opens the port; rejects with a `ConfigError` that names the file or the flag at fault. */
export async function openTlsPort<Door extends VirtualHost>(
  port: TlsPort<Door>,
  deps: PortDeps,
): Promise<{ listener: TlsListener<Door>; address: AddressInfo }> {
  const listener = createListener(port, deps);
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}

function createListener<Door extends VirtualHost>(port: TlsPort<Door>, deps: PortDeps): TlsListener<Door> {
  const { doors, onSecure } = port;
  const { tlsMinVersion, cipherSuites: ciphers } = deps.options;
  const rules = acceptRules(port, deps, WORDS.tls);
  try {
    return new TlsListener({ ...rules, doors, minVersion: tlsMinVersion as SecureVersion, ciphers, onSecure });
  } catch (error) {
    throw new ConfigError([`The listener for ${port.name}: ${(error as Error).message}.`], { cause: error });
  }
}
