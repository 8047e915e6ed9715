import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../shared/basics/testing/wait.ts";
import type { ServerOptions } from "../../options/options.ts";
import type { TestServer } from "../../testing/server.ts";
import { agentAt, callerAt, type Tenant, Tenants } from "../../testing/tenants.ts";
import { askOn, Fleet } from "./fleet.ts";

interface TenantFleetOptions {
  readonly more?: object;
  /** Of the first server. */
  readonly options?: Partial<ServerOptions>;
  /** Of the second one. */
  readonly farOptions?: Partial<ServerOptions>;
  /**
   * Bytes that the targets of a cluster send before they end; targets without bytes stay. They never read; the targets
   * of other clusters echo.
   */
  readonly greetings?: Readonly<Record<string, Buffer>>;
}

/** Two servers with documents of the same clusters; the agents are at the second, whose documents say `more`. */
export async function fleetOf(
  names: readonly string[],
  { more = {}, options = {}, farOptions = {}, greetings = {} }: TenantFleetOptions = {},
) {
  const tenants = await Tenants.create(names);
  for (const name of names) await tenants.get(name).write({ callers: { uds: undefined } });
  const folder = await mkdtemp(join(tmpdir(), "culvert-tenants-"));
  await cp(tenants.folder, folder, { recursive: true });
  for (const name of names) await tenants.get(name).write({ callers: { uds: undefined }, ...more });
  const fleet = new Fleet();
  const near = await fleet.start("srv-1", { clusters: folder, ...options });
  const far = await fleet.start("srv-2", { clusters: tenants.folder, ...farOptions });
  for (const name of names) {
    const at = tenants.get(name);
    await agentAt(far, greetings[name], { at, by: at.agent });
    await until(() => fleet.hub.holders(name).join() === "srv-2");
  }
  return {
    ...{ near, far, tenants },
    [Symbol.asyncDispose]: async () => {
      await fleet[Symbol.asyncDispose]();
      await tenants[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** One CONNECT of a caller of the cluster; resolves as `ask` does. */
export async function askAs(server: TestServer, { sni, caller }: Tenant, target = "10.0.0.1:10250") {
  const socket = await callerAt(server, sni, caller);
  return await askOn(socket, `CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
}

/** Bytes that a server holds for a cluster. */
export async function held(server: TestServer, cluster: string): Promise<number> {
  const text = await server.metrics.registry.metrics();
  const start = `culvert_server_memory_held_bytes{cluster="${cluster}"} `;
  const line = text.split("\n").find((each) => each.startsWith(start)) ?? "";
  return Number(line.slice(start.length));
}
