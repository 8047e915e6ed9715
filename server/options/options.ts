import { defineService, SERVER_ONLY } from "../../shared/config/common-options.ts";
import type { ForeignFlagEffect, OptionsOf } from "../../shared/config/options.ts";
import { rows } from "./option-rows.ts";
import { resolveOptions } from "./resolve-options.ts";

const BOTH_MODES = "callers may speak gRPC and HTTP CONNECT, whatever it says";

export const serverOptions = defineService({
  command: "server",
  summary: "Takes CONNECT requests from callers and carries them through the tunnels that agents have dialled.",
  envPrefix: "CULVERT_SERVER",
  example: [
    "culvert server --uds-name /run/culvert/culvert.sock \\",
    "  --cluster-cert cluster.crt --cluster-key cluster.key --cluster-ca-cert cluster-ca.crt",
  ],
  options: rows,
  firstDay: [
    ...["clusters", "udsName", "serverPort", "serverCert", "serverKey", "serverCaCert", "agentPort", "clusterCert"],
    ...["clusterKey", "clusterCaCert", "agentIdentities", "authenticationAudience", "serverCount", "connectTimeoutMs"],
    ...["drainTimeoutMs", "memoryLimit", "healthPort", "adminPort", "logLevel", "logFormat"],
  ],
  foreign: {
    mode: {
      boolean: false,
      help: BOTH_MODES,
      effectOf: effectOfMode,
    },
    ...SERVER_ONLY,
  },
  resolve: resolveOptions,
});

export type ServerOptions = OptionsOf<typeof serverOptions>;

/** The name of the one cluster of a server that is configured by flags alone. */
export const DEFAULT_CLUSTER = "default";

function effectOfMode(value: string): ForeignFlagEffect {
  if (value === "") return "harmless";
  if (value === "grpc" || value === "http-connect") return { ignored: BOTH_MODES };
  return { refused: `has no mode ${JSON.stringify(value.slice(0, 40))}; known are grpc and http-connect.` };
}
