import { flags } from "../harness/pki-files.ts";
import { startCulvert } from "../harness/processes.ts";
import { callerFiles } from "../harness/sidecar.ts";
import { started } from "../harness/started.ts";
import { freePort } from "../harness/targets/absent.ts";
import { BenchChild } from "./child.ts";
import type { Contender, Ports } from "./contenders.ts";
import type { Culvert } from "./culvert.ts";
import type { BareSidecarMethods } from "./floors/bare-sidecar.ts";

/** `culvert http-proxy` in front of the server of a pair: one process more on the way. */
export async function startSidecar({ site, near = 0, far = 0 }: Culvert, ports: Partial<Ports>): Promise<Contender> {
  const [port, healthPort] = [await freePort(), await freePort()];
  const own = { server: `127.0.0.1:${site.callerPort}`, port, healthPort, healthBindAddress: "127.0.0.1" };
  const proxy = startCulvert(["http-proxy", ...flags({ ...own, ...callerFiles(site) })], { ignoreStdout: true });
  await started(proxy, () => proxy.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`));
  return {
    ...{ name: "culvert", near: proxy.pid, between: near, far },
    dial: (target) => ({ port, connect: `127.0.0.1:${ports[target]}` }),
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

/** The smallest sidecar that Node allows, in front of the same server. */
export async function startBareSidecar({ site }: Culvert, ports: Partial<Ports>): Promise<Contender> {
  const bare = new BenchChild<BareSidecarMethods>("floors/bare-sidecar.ts");
  const { port } = await bare.call("start", { server: site.callerPort, files: callerFiles(site) });
  return {
    name: "bare",
    dial: (target) => ({ port, connect: `127.0.0.1:${ports[target]}` }),
    [Symbol.asyncDispose]: () => bare[Symbol.asyncDispose](),
  };
}
