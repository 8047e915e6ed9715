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

/** One address for the agents of a fleet: each connection goes to the server that has fewest. */
export function agentsBalancer(port: number, servers: readonly ServerSlot[]): string {
  return `global
    maxconn 4000

defaults
    mode tcp
    timeout connect 1s
    timeout check 1s
    timeout client 1m
    timeout server 1m
    retries 3
    option redispatch 1

listen agents
    bind 127.0.0.1:${port}
    balance leastconn
${servers.map(({ name, agentPort }) => `    server ${name} 127.0.0.1:${agentPort} check inter 500ms fall 1 rise 1`).join("\n")}
`;
}
