import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { MAIN, RUNTIME, requireBuilt } from "../../harness/processes.ts";
import { freePort } from "../../harness/targets/absent.ts";
import { TempDir } from "../../harness/temp.ts";
import { listenerOf, type Product } from "./product.ts";

/** This build with its defaults, or the one of another clone. It runs as in the image, with V8's code of a start. */
export function culvert(name: "culvert" | "before", clone?: string): Product {
  const main = clone === undefined ? MAIN : join(clone, "dist/cli/main.js");
  let env: Promise<Record<string, string>> | undefined;
  const product: Product = {
    name,
    takesConnect: true,
    async plan(site, ports, way) {
      if (clone === undefined) requireBuilt();
      env ??= withCompiledCode(main);
      const callers = listenerOf(site, way);
      return {
        server: [RUNTIME, main, ...site.serverArguments()],
        agent: [RUNTIME, main, ...site.agentArguments({ healthServerPort: await freePort() })],
        env: await env,
        listeners: [callers, { port: site.agentPort }],
        dial: (target) => ({ ...callers, connect: `127.0.0.1:${ports[target]}` }),
      };
    },
  };
  return { ...product, overHttp2: product };
}

/** As the Dockerfile does it. Node.js keeps compiled code from 22.1 on. */
async function withCompiledCode(main: string): Promise<Record<string, string>> {
  const folder = new TempDir();
  process.once("exit", () => folder[Symbol.dispose]());
  const env = { NODE_COMPILE_CACHE: folder.path };
  await promisify(execFile)(RUNTIME, [main, "demo", "--once"], { env: { ...process.env, ...env } });
  return env;
}
