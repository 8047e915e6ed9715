import type { ServerSlot } from "./server-slot.ts";

interface CallerPorts {
  /** Leads to servers whose /readyz answers 200. */
  readonly ready: number;
  /** Leads to each server in turn, whatever its state. */
  readonly published: number;
}

/** haproxy before several servers. TLS passes through unopened; a refused dial is made again at another server. */
export function haproxyConfiguration(ports: CallerPorts, servers: readonly ServerSlot[]): string {
  const list = (check: (server: ServerSlot) => string) =>
    servers.map((server) => `    server ${server.name} 127.0.0.1:${server.callerPort} ${check(server)}`).join("\n");
  return `
global
    maxconn 4000

defaults
    mode tcp
    timeout connect 1s
    timeout client 1m
    timeout server 1m
    timeout check 1s
    retries 3
    option redispatch 1

listen ready
    bind 127.0.0.1:${ports.ready}
    balance roundrobin
    option httpchk GET /readyz
${list(({ healthPort }) => `check port ${healthPort} inter 200ms fall 1 rise 1`)}

listen published
    bind 127.0.0.1:${ports.published}
    balance roundrobin
${list(() => "")}
`;
}
