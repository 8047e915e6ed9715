import type { Site } from "./binaries.ts";
import { konnectivityPrograms } from "./konnectivity-programs.ts";
import { flags, serverFiles } from "./pki-files.ts";
import { Program } from "./program.ts";
import { freePort } from "./targets/absent.ts";

/** A process of Konnectivity's own server, with the unix socket and the agents' port of a site. */
export async function konnectivityServer(site: Site, mode: "grpc" | "http-connect"): Promise<Program> {
  const { clusterCert, clusterKey, clusterCaCert } = serverFiles(site.dir.path);
  const { server } = await konnectivityPrograms();
  const options = {
    ...{ mode, udsName: site.uds, serverPort: 0, agentPort: site.agentPort, v: 0 },
    ...{ healthPort: site.healthPort, adminPort: await freePort(), clusterCert, clusterKey, clusterCaCert },
    ...{ agentBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" },
  };
  return new Program("konnectivity-server", [server, ...flags(options)]);
}
