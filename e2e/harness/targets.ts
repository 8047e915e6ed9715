import { freePort } from "./targets/absent.ts";
import { bannerTarget, echoTarget, sinkTarget, sourceTarget } from "./targets/plain.ts";
import type { TargetServer } from "./targets/tcp.ts";
import { http2Target, httpsTarget, httpTarget, webSocketTarget } from "./targets/web.ts";

/** Every target a scenario can name (with its defaults; call the function itself for other ones). */
export const TARGETS = {
  echo: echoTarget,
  sink: sinkTarget,
  source: sourceTarget,
  banner: bannerTarget,
  http: httpTarget,
  https: httpsTarget,
  http2: http2Target,
  websocket: webSocketTarget,
} as const satisfies Record<string, () => Promise<TargetServer>>;

export type TargetName = keyof typeof TARGETS;
export type Targets = { readonly [Name in TargetName]: Awaited<ReturnType<(typeof TARGETS)[Name]>> };

/** Nobody listens there. */
export async function refusedTarget(): Promise<TargetServer> {
  const port = await freePort();
  return { host: "127.0.0.1", port, address: `127.0.0.1:${port}`, [Symbol.asyncDispose]: async () => {} };
}
