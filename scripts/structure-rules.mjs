/** The folders of shared that any part of the server may import. */
const OF_SERVER = [
  "basics",
  "address",
  "http",
  "limits",
  "config",
  "runtime",
  "tls",
  "relay",
  "node",
  "listen",
  "net",
  "names",
  "wire",
  "yamux",
  "link",
]
  .map((folder) => `shared/${folder}`)
  .concat("shared");

/**
 * Which folders and packages the product files of a folder may import; every file may import `node:*` and its own
 * folder.
 */
export const FOLDERS = {
  shared: [],
  "shared/faults": [],
  "shared/basics": ["zod"],
  "shared/address": ["shared", "shared/basics"],
  "shared/names": [],
  "shared/net": ["shared/address", "shared/basics", "shared/names"],
  "shared/http": ["shared", "shared/basics", "shared/net", "shared/tls"],
  "shared/node": [],
  "shared/limits": ["shared", "shared/basics", "shared/node"],
  "shared/documents": ["shared", "shared/basics", "shared/limits", "yaml", "zod"],
  "shared/config": ["shared", "shared/address", "shared/basics", "shared/documents", "shared/limits", "commander"],
  "shared/runtime": [
    ...["shared", "shared/basics", "shared/config", "shared/limits", "shared/node"],
    ...["pino", "pino-pretty", "prom-client"],
  ],
  "shared/pki": ["@peculiar/x509"],
  "shared/tls": ["shared/faults", "shared", "shared/basics", "shared/documents", "shared/node"],
  "shared/kubernetes": [
    ...["shared", "shared/address", "shared/basics", "shared/documents", "shared/http", "shared/tls", "yaml", "zod"],
  ],
  "shared/relay": ["shared/basics", "shared/limits", "shared/node"],
  "shared/listen": ["shared/address", "shared/basics", "shared/http", "shared/limits", "shared/node", "shared/tls"],
  "shared/admin": [
    ...["shared", "shared/address", "shared/basics", "shared/config", "shared/http", "shared/limits", "shared/listen"],
    ...["shared/runtime", "fastify", "prom-client", "zod"],
  ],
  "shared/dial/auth": ["shared/basics", "kerberos"],
  "shared/dial": [
    "shared/faults",
    ...[
      "shared",
      "shared/address",
      "shared/basics",
      "shared/dial/auth",
      "shared/documents",
      "shared/http",
      "shared/net",
      "shared/names",
      "shared/tls",
    ],
    "quickjs-wasi",
  ],
  "shared/wire": ["shared", "shared/address", "shared/basics", "zod"],
  "shared/yamux": ["shared/basics", "shared/limits"],
  "shared/link": [
    "shared/faults",
    ...["shared", "shared/address", "shared/basics", "shared/http", "shared/limits", "shared/listen", "shared/tls"],
    ...["shared/net", "shared/node", "shared/wire", "shared/yamux", "ws", "zod"],
  ],
  "agent/context": [
    ...["shared", "shared/address", "shared/basics", "shared/config", "shared/dial", "shared/limits", "shared/names"],
    ...["shared/runtime", "shared/wire", "shared/yamux", "prom-client"],
  ],
  "agent/streams": [
    ...["agent/context", "shared", "shared/address", "shared/dial", "shared/relay", "shared/wire", "shared/yamux"],
  ],
  "agent/uplink": [
    "shared/faults",
    ...["agent/context", "shared", "shared/address", "shared/basics", "shared/config", "shared/dial"],
    ...[
      "shared/dial/auth",
      "shared/documents",
      "shared/http",
      "shared/limits",
      "shared/link",
      "shared/runtime",
      "shared/tls",
      "shared/wire",
      "shared/yamux",
    ],
  ],
  agent: [
    ...[
      "agent/context",
      "agent/streams",
      "agent/uplink",
      "shared/admin",
      "shared/basics",
      "shared/config",
      "shared/dial",
    ],
    ...["shared/documents", "shared/limits", "shared/link", "shared/runtime", "shared/tls", "shared/yamux"],
  ],
  "agent/doctor": [
    "shared/faults",
    ...["agent/context", "agent/uplink", "shared", "shared/address", "shared/basics", "shared/config", "shared/dial"],
    ...["shared/http", "shared/link", "shared/names", "shared/runtime", "shared/tls", "shared/wire", "shared/yamux"],
  ],
  "server/options": ["server/clusters", ...OF_SERVER],
  "server/replicas": [
    ...["server/options", "shared/basics", "shared/config", "shared/kubernetes", "shared/runtime", "zod"],
  ],
  "server/metrics": ["server/clusters", ...OF_SERVER, "prom-client"],
  "server/tunnels": [
    ...["server/clusters", "server/tokens", "server/metrics", "server/options", "server/replicas", ...OF_SERVER],
  ],
  "server/listeners": [
    ...[
      "server/clusters",
      "server/tokens",
      "server/tunnels",
      "server/metrics",
      "server/options",
      ...OF_SERVER,
      "shared/admin",
      "@fastify/websocket",
      "fastify",
    ],
  ],
  "server/agents": [
    ...["server/clusters", "server/tokens", "server/tunnels", "server/cluster-runtime", "server/listeners"],
    ...["server/metrics", "server/options", "server/replicas", ...OF_SERVER, "fastify", "ws"],
  ],
  "server/callers": [
    ...["server/tokens", "server/tunnels", "server/cluster-runtime", "server/listeners"],
    ...["server/metrics", "server/options", ...OF_SERVER, "shared/documents"],
  ],
  "server/peers": [
    ...["server/listeners", "server/tunnels", "server/metrics", "server/options", ...OF_SERVER],
    ...[
      "server/cluster-runtime",
      "shared/documents",
      "shared/faults",
      "@nats-io/transport-node",
      "fastify",
      "ws",
      "zod",
    ],
  ],
  "server/operators": [
    ...["server/clusters", "server/cluster-runtime", "server/tunnels", "server/metrics", "server/options"],
    ...[...OF_SERVER, "shared/admin", "zod"],
  ],
  server: [
    ...["server/clusters", "server/tokens", "server/tunnels", "server/cluster-runtime", "server/listeners"],
    ...["server/agents", "server/callers", "server/operators", "server/peers", "server/metrics", "server/options"],
    ...["server/replicas", ...OF_SERVER],
  ],
  "server/clusters": [
    ...[
      "shared",
      "shared/address",
      "shared/basics",
      "shared/config",
      "shared/documents",
      "shared/limits",
      "shared/tls",
    ],
    "zod",
  ],
  "server/tokens": [
    ...[
      "server/clusters",
      "shared",
      "shared/basics",
      "shared/documents",
      "shared/http",
      "shared/kubernetes",
      "shared/runtime",
      "shared/tls",
    ],
    ...["jose", "zod"],
  ],
  "server/cluster-runtime": [
    ...["server/clusters", "server/metrics", "server/options", "server/tokens", "server/tunnels"],
    ...["shared", "shared/address", "shared/basics", "shared/config", "shared/limits", "shared/listen"],
    ...["shared/runtime", "shared/tls"],
  ],
  router: [
    ...[
      "shared",
      "shared/address",
      "shared/admin",
      "shared/basics",
      "shared/config",
      "shared/dial",
      "shared/documents",
    ],
    ...["shared/http", "shared/limits", "shared/listen", "shared/relay", "shared/runtime", "prom-client", "zod"],
  ],
  "cli/pki": [
    ...["shared", "shared/address", "shared/basics", "shared/config", "shared/http"],
    ...["shared/kubernetes", "shared/pki", "shared/tls", "zod"],
  ],
  "cli/demo": ["cli/pki", "shared/basics", "shared/config", "shared/pki", "shared/runtime"],
  "cli/status": ["shared", "shared/address", "shared/basics", "shared/config", "shared/net", "zod"],
  cli: [
    ...["agent", "agent/context", "agent/doctor", "cli/demo", "cli/pki", "cli/status", "router", "server"],
    ...["server/options", "shared", "shared/address", "shared/basics", "shared/config", "shared/documents"],
    ...["shared/limits", "shared/node", "shared/runtime", "commander", "zod"],
  ],
};
