import { join } from "node:path";
import { MAIN, requireBuilt } from "../../harness/processes.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { listenerOf, type Product } from "./product.ts";

/** This build with its defaults, or the one of another clone. */
export function culvert(name: "culvert" | "before", clone?: string): Product {
  const main = clone === undefined ? MAIN : join(clone, "dist/cli/main.js");
  return {
    name,
    takesConnect: true,
    async plan(site, ports, way) {
      if (clone === undefined) requireBuilt();
      const callers = listenerOf(site, way);
      return {
        server: [process.execPath, main, ...site.serverArguments()],
        agent: [process.execPath, main, ...site.agentArguments({ healthServerPort: await freePort() })],
        listeners: [callers, { port: site.agentPort }],
        dial: (target) => ({ ...callers, connect: `127.0.0.1:${ports[target]}` }),
      };
    },
  };
}
