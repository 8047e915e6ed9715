import { join } from "node:path";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { startHttpProxy } from "../../sidecars/http-proxy.ts";
import {
  type HttpProxyOptions,
  httpProxyOptions,
  type Socks5ProxyOptions,
  socks5ProxyOptions,
} from "../../sidecars/options.ts";
import type { Sidecar } from "../../sidecars/sidecar.ts";
import { startSocks5Proxy } from "../../sidecars/socks5-proxy.ts";
import type { World } from "./world.ts";

/** A sidecar of this process, on free ports. */
export interface RunningSidecar extends AsyncDisposable {
  readonly sidecar: Sidecar;
  readonly port: number;
  /** Where clients connect to: `127.0.0.1:port`. */
  readonly address: string;
}

type SidecarWorld = Pick<World, "dir" | "server">;

/** `culvert socks5-proxy` in front of the server of a world. */
export async function startSocks5(
  world: SidecarWorld,
  more: Partial<Socks5ProxyOptions> = {},
): Promise<RunningSidecar> {
  const options = { ...defaultsOf(socks5ProxyOptions), ...valuesFor(world), ...more };
  return running(await startSocks5Proxy(options, { log, listenEphemeral: true }));
}

/** `culvert http-proxy` in front of the server of a world. */
export async function startHttp(world: SidecarWorld, more: Partial<HttpProxyOptions> = {}): Promise<RunningSidecar> {
  const options = { ...defaultsOf(httpProxyOptions), ...valuesFor(world), ...more };
  return running(await startHttpProxy(options, { log, listenEphemeral: true }));
}

function valuesFor(world: SidecarWorld) {
  return {
    server: [`127.0.0.1:${world.server.addresses.callers?.port}`],
    ...callerFiles(world),
    ...{ port: 0, healthPort: 0, healthBindAddress: "127.0.0.1", drainTimeoutMs: 1_000 },
  };
}

/** The files of `culvert pki`, as options of a sidecar. */
export function callerFiles({ dir: { path } }: Pick<SidecarWorld, "dir">) {
  return { caCert: join(path, "server-ca.crt"), cert: join(path, "client.crt"), key: join(path, "client.key") };
}

const { CULVERT_E2E_LOG: level = "silent" } = process.env;
/** A single logger for all: each logger would listen for the end of the process. */
const log = createLogger({ level, format: "auto", name: "sidecar" });

function running(sidecar: Sidecar): RunningSidecar {
  const port = sidecar.addresses.clients?.port ?? 0;
  return {
    ...{ sidecar, port, address: `127.0.0.1:${port}` },
    [Symbol.asyncDispose]: async () => sidecar.destroy(new Error("the test ends")),
  };
}
