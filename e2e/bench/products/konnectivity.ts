import { agentFiles, flags, serverFiles } from "../../harness/pki-files.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { listenerOf, type Product } from "./product.ts";
import { builtVersion } from "./version.ts";

/**
 * Konnectivity in its HTTP CONNECT mode, and in its gRPC mode for callers over HTTP/2: a server listens on a unix
 * socket or on TCP, not on both. By default each of its processes logs seven lines for every connection, so it is
 * measured without them, too.
 */
export function konnectivity(server: string, agent: string): Product[] {
  const overHttp2 = variant("konnectivity", server, agent, { mode: "grpc" });
  return [
    { ...variant("konnectivity", server, agent, {}), overHttp2 },
    variant("quietKonnectivity", server, agent, { v: 0 }, { v: 0 }),
  ];
}

function variant(
  name: "konnectivity" | "quietKonnectivity",
  server: string,
  agent: string,
  ofServer: Readonly<Record<string, string | number>>,
  ofAgent: Readonly<Record<string, number>> = {},
): Product {
  return {
    name,
    takesConnect: true,
    version: builtVersion(server),
    async plan(site, ports, way) {
      const callers = listenerOf(site, way);
      const { clusterCert, clusterKey, clusterCaCert, ...callersTls } = serverFiles(site.dir.path);
      const onSocket = { udsName: site.uds, serverPort: 0 };
      const onPort = { serverPort: site.callerPort, ...callersTls };
      const serverFlags = {
        mode: "http-connect",
        ...(way === "unix socket" ? onSocket : onPort),
        serverBindAddress: "127.0.0.1",
        agentPort: site.agentPort,
        agentBindAddress: "127.0.0.1",
        healthPort: site.healthPort,
        healthBindAddress: "127.0.0.1",
        adminPort: await freePort(),
        clusterCert,
        clusterKey,
        clusterCaCert,
        ...ofServer,
      };
      const agentFlags = {
        proxyServerHost: "127.0.0.1",
        proxyServerPort: site.agentPort,
        healthServerHost: "127.0.0.1",
        healthServerPort: await freePort(),
        adminBindAddress: "127.0.0.1",
        adminServerPort: await freePort(),
        ...agentFiles(site.dir.path),
        ...ofAgent,
      };
      return {
        server: [server, ...flags(serverFlags)],
        agent: [agent, ...flags(agentFlags)],
        listeners: [callers, { port: site.agentPort }],
        dial: (target) => ({ ...callers, connect: `127.0.0.1:${ports[target]}` }),
      };
    },
  };
}
