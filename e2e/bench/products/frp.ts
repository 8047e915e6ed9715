import { writeFileSync } from "node:fs";
import { agentFiles, serverFiles } from "../../harness/pki-files.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { BENCH_TARGETS, type BenchTarget } from "../dial-spec.ts";
import type { Product } from "./product.ts";
import { saidVersion } from "./version.ts";

/**
 * frp with a proxy of type "tcp" for each target, and mutual TLS between its two processes. It has no CONNECT to a
 * target that the caller names, so its callers come to a port of the target over plain TCP.
 */
export function frp(server: string, agent: string): Product[] {
  const product: Product = {
    name: "frp",
    takesConnect: false,
    version: saidVersion(server),
    async plan(site, ports) {
      const own = serverFiles(site.dir.path);
      const client = agentFiles(site.dir.path);
      const serverFile = site.dir.file("frps.toml");
      writeFileSync(
        serverFile,
        toml({
          bindAddr: "127.0.0.1",
          bindPort: site.agentPort,
          "transport.tls.certFile": own.clusterCert,
          "transport.tls.keyFile": own.clusterKey,
          "transport.tls.trustedCaFile": own.clusterCaCert,
        }),
      );
      const remote = {} as Record<BenchTarget, number>;
      const proxies: string[] = [];
      for (const name of BENCH_TARGETS) {
        remote[name] = await freePort();
        const proxy = { name, type: "tcp", localIP: "127.0.0.1", localPort: ports[name], remotePort: remote[name] };
        proxies.push(`[[proxies]]\n${toml(proxy)}`);
      }
      const common = {
        serverAddr: "127.0.0.1",
        serverPort: site.agentPort,
        "transport.tls.certFile": client.agentCert,
        "transport.tls.keyFile": client.agentKey,
        "transport.tls.trustedCaFile": client.caCert,
        "transport.tls.serverName": "localhost",
      };
      const agentFile = site.dir.file("frpc.toml");
      writeFileSync(agentFile, [toml(common), ...proxies].join("\n"));
      return {
        server: [server, "-c", serverFile],
        agent: [agent, "-c", agentFile],
        listeners: [{ port: site.agentPort }],
        dial: (target) => ({ port: remote[target] }),
      };
    },
  };
  return [product];
}

/** Keys with plain values; TOML writes strings as JSON does. */
function toml(values: Readonly<Record<string, string | number>>): string {
  return Object.entries(values)
    .map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`)
    .join("");
}
