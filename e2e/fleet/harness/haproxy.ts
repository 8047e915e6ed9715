import { configurations, located } from "../../harness/page-configuration.ts";
import type { ServerSlot } from "./server-slot.ts";

export interface BalancerPorts {
  /** For callers: leads to servers whose /readyz answers 200. */
  readonly ready: number;
  /** For callers: leads to each server in turn, whatever its state. */
  readonly published: number;
  readonly agents: number;
}

/** haproxy before several servers, as docs/rolling-updates.md has it, and a way to servers that are not ready. */
export function haproxyConfiguration(ports: BalancerPorts, servers: readonly ServerSlot[]): string {
  const [text = ""] = configurations("rolling-updates.md", "haproxy");
  const addresses = servers.flatMap(({ callerPort, agentPort, healthPort }, index): [string, string][] => [
    [`10.0.0.1${index + 1}:8090 check port 8092`, `127.0.0.1:${callerPort} check port ${healthPort}`],
    [`10.0.0.1${index + 1}:8091`, `127.0.0.1:${agentPort}`],
  ]);
  const page = located(text, {
    "bind :8090": `bind 127.0.0.1:${ports.ready}`,
    "bind :8091": `bind 127.0.0.1:${ports.agents}`,
    ...Object.fromEntries(addresses),
  });
  return `${page}
listen published
    bind 127.0.0.1:${ports.published}
    balance roundrobin
${servers.map(({ name, callerPort }) => `    server ${name} 127.0.0.1:${callerPort}`).join("\n")}
`;
}

/** haproxy before server processes of one machine that share the clusters out, as docs/scale.md has it for two. */
export function scaleConfiguration(
  ports: Pick<BalancerPorts, "agents"> & { readonly callers: number },
  servers: readonly ServerSlot[],
): string {
  const [page = ""] = configurations("scale.md", "haproxy");
  const text = servers.length === 2 ? page : page.replace(/^ *server 02 .*\n/gm, "");
  const addresses = servers.flatMap(({ callerPort, agentPort }, index): [string, string][] => [
    [`127.0.0.1:810${index + 1}`, `127.0.0.1:${callerPort}`],
    [`127.0.0.1:820${index + 1}`, `127.0.0.1:${agentPort}`],
  ]);
  return located(text, {
    "bind :8090": `bind 127.0.0.1:${ports.callers}`,
    "bind :8091": `bind 127.0.0.1:${ports.agents}`,
    ...Object.fromEntries(addresses),
  });
}

/** One address for the agents and one for the callers of a fleet, as docs/fleet.md has it for three servers. */
export function fleetConfiguration(
  ports: Pick<BalancerPorts, "agents"> & { readonly callers: number },
  servers: readonly ServerSlot[],
): string {
  const [page = ""] = configurations("fleet.md", "haproxy");
  // The page's last server stands for any further ones.
  const further = servers.slice(3).map((_, index) => 14 + index);
  const text = page.replace(/^ *server c .*\n/gm, (line) =>
    [line, ...further.map((n) => line.replace("server c 10.0.0.13", `server c${n} 10.0.0.${n}`))].join(""),
  );
  const addresses = servers.flatMap(({ callerPort, agentPort, healthPort }, index): [string, string][] => [
    [`10.0.0.1${index + 1}:8090 check port 8092`, `127.0.0.1:${callerPort} check port ${healthPort}`],
    [`10.0.0.1${index + 1}:8091`, `127.0.0.1:${agentPort}`],
  ]);
  return located(text, {
    "bind :8090": `bind 127.0.0.1:${ports.callers}`,
    "bind :8091": `bind 127.0.0.1:${ports.agents}`,
    ...Object.fromEntries(addresses),
  });
}
