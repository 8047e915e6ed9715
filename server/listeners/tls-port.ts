import type { AddressInfo } from "node:net";
import type { SecureVersion } from "node:tls";
import { listenError } from "../../shared/config/listen-address.ts";
import { ConfigError } from "../../shared/config/options.ts";
import {
  type HostedConnection,
  TlsListener,
  type VirtualHost,
  type VirtualHosts,
} from "../../shared/listen/listeners.ts";
import { acceptRules, type Port, type PortDeps, WORDS } from "./accept-rules.ts";

/** One of the ports that callers and agents come to over TLS. */
export interface TlsPort<Host extends VirtualHost> extends Port {
  readonly name: "callers" | "agents";
  readonly hosts: VirtualHosts<Host>;
  onConnection(connection: HostedConnection<Host>): void;
}

/** Opens the port; rejects with a `ConfigError` that names the file or the flag at fault. */
export async function openTlsPort<Host extends VirtualHost>(
  port: TlsPort<Host>,
  deps: PortDeps,
): Promise<{ listener: TlsListener<Host>; address: AddressInfo }> {
  const listener = createListener(port, deps);
  try {
    return { listener, address: await listener.listen(port.port, port.host) };
  } catch (error) {
    throw listenError(error, port);
  }
}

function createListener<Host extends VirtualHost>(port: TlsPort<Host>, deps: PortDeps): TlsListener<Host> {
  const { hosts, onConnection } = port;
  const { tlsMinVersion, cipherSuites: ciphers } = deps.options;
  const rules = acceptRules(port, deps, WORDS.tls);
  try {
    return new TlsListener({ ...rules, hosts, minVersion: tlsMinVersion as SecureVersion, ciphers, onConnection });
  } catch (error) {
    throw new ConfigError([`The listener for ${port.name}: ${(error as Error).message}.`], { cause: error });
  }
}
