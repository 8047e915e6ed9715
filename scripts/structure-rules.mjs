/** Which folders and packages the product files of a folder may import; every file may import `node:*` and its own folder. */
export const FOLDERS = {
  shared: [],
  "shared/basics": ["zod"],
  "shared/address": ["shared", "shared/basics"],
  "shared/http": ["shared"],
  "shared/limits": ["shared", "shared/basics"],
  "shared/documents": ["shared", "shared/basics", "yaml"],
  "shared/config": ["shared", "shared/basics", "shared/documents", "commander", "yaml"],
  "shared/runtime": ["shared", "shared/basics", "shared/config", "shared/limits", "pino", "pino-pretty", "prom-client"],
  "shared/pki": ["@peculiar/x509"],
  "shared/tls": ["shared", "shared/basics", "shared/documents"],
  "shared/relay": ["shared/basics", "shared/limits"],
  "shared/listen": ["shared/address", "shared/basics", "shared/http", "shared/limits", "shared/relay", "shared/tls"],
  "shared/admin": [
    ...["shared", "shared/address", "shared/basics", "shared/http", "shared/limits", "shared/listen", "shared/runtime"],
    ...["fastify", "prom-client"],
  ],
  "shared/dial/auth": ["shared/basics", "kerberos"],
  "shared/dial": [
    ...[
      "shared",
      "shared/address",
      "shared/basics",
      "shared/dial/auth",
      "shared/documents",
      "shared/http",
      "shared/tls",
    ],
    ...["pac-resolver", "quickjs-wasi", "socks"],
  ],
  "shared/wire": ["shared", "shared/address", "zod"],
  "shared/yamux": ["shared/basics", "shared/limits"],
  "shared/link": [
    ...["shared", "shared/address", "shared/basics", "shared/http", "shared/limits", "shared/listen", "shared/tls"],
    ...["shared/wire", "shared/yamux", "ws", "zod"],
  ],
  "agent/streams": [
    ...["shared", "shared/address", "shared/dial", "shared/relay", "shared/runtime", "shared/wire", "shared/yamux"],
  ],
  "agent/uplink": [
    ...["shared", "shared/address", "shared/basics", "shared/config", "shared/dial", "shared/dial/auth"],
    ...[
      "shared/documents",
      "shared/http",
      "shared/link",
      "shared/runtime",
      "shared/tls",
      "shared/wire",
      "shared/yamux",
    ],
  ],
  agent: [
    ...["agent/streams", "agent/uplink", "shared", "shared/address", "shared/admin", "shared/config", "shared/dial"],
    ...["shared/documents", "shared/limits", "shared/link", "shared/runtime", "shared/tls", "shared/wire"],
    ...["shared/yamux", "prom-client"],
  ],
  "agent/doctor": [
    ...["agent", "agent/uplink", "shared", "shared/address", "shared/basics", "shared/config", "shared/dial"],
    ...["shared/http", "shared/link", "shared/runtime", "shared/tls", "shared/wire", "shared/yamux"],
  ],
};
