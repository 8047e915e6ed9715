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
