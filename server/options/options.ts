import { defineService, SERVER_ONLY } from "../../shared/config/common-options.ts";
import type { ForeignFlagEffect, OptionsOf } from "../../shared/config/options.ts";
import { rows } from "./option-rows.ts";
import { resolveOptions } from "./resolve-options.ts";

export const serverOptions = defineService({
  command: "server",
  summary: "Takes CONNECT requests from callers and carries them through the tunnels that agents have dialled.",
  envPrefix: "CULVERT_SERVER",
  example: [
    "culvert server --uds-name /run/culvert/culvert.sock \\",
    "  --cluster-cert cluster.crt --cluster-key cluster.key --cluster-ca-cert cluster-ca.crt",
  ],
  options: rows,
  foreign: {
    mode: {
      boolean: false,
      help: "culvert speaks HTTP CONNECT only; in the EgressSelectorConfiguration write `proxyProtocol: HTTPConnect`.",
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
  if (value === "" || value === "http-connect") return "harmless";
  if (value !== "grpc")
    return { refused: `has no mode ${JSON.stringify(value.slice(0, 40))}; culvert speaks http-connect.` };
  return {
    refused:
      "culvert speaks HTTP CONNECT only. Leave the flag out and change one line of kube-apiserver's --egress-selector-config-file: `proxyProtocol: HTTPConnect`.",
  };
}
