import type { AddressInfo } from "node:net";
import type { TlsListener, VirtualHosts } from "../../shared/listen/listeners.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { openTlsPort, type PortDeps } from "../listeners/open-port.ts";
import type { ServerOptions } from "../options/options.ts";
import type { CallerListeners } from "./caller-listeners.ts";

export interface CallersPortDeps extends PortDeps {
  readonly options: ServerOptions;
  readonly callers: CallerListeners;
}

/** Opens the callers' TCP port; rejects with a `ConfigError`. */
export function openCallersPort(
  hosts: VirtualHosts<ClusterVirtualHost>,
  deps: CallersPortDeps,
): Promise<{ listener: TlsListener<ClusterVirtualHost>; address: AddressInfo }> {
  const { callers, options } = deps;
  const { serverPort: port, serverBindAddress: host, serverProxyProtocol: proxyProtocol } = options;
  return openTlsPort(
    {
      ...{ name: "callers", hosts, proxyProtocol, port, host },
      ...{ option: "--server-port", hostOption: "--server-bind-address" },
      keepaliveMs: options.frontendKeepaliveMs,
      turnsAway: false, // kube-apiserver would not come back later
      onConnection: (connection) => callers.take(connection.host, connection),
    },
    deps,
  );
}
