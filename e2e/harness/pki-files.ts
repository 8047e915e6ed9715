import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { CallerTls } from "./caller.ts";

/** The files of `culvert pki`, as options of a server. */
export function serverFiles(dir: string) {
  return {
    serverCert: join(dir, "server.crt"),
    serverKey: join(dir, "server.key"),
    serverCaCert: join(dir, "server-ca.crt"),
    clusterCert: join(dir, "cluster.crt"),
    clusterKey: join(dir, "cluster.key"),
    clusterCaCert: join(dir, "cluster-ca.crt"),
  };
}

/** The same, as options of an agent. */
export function agentFiles(dir: string) {
  return {
    caCert: join(dir, "cluster-ca.crt"),
    agentCert: join(dir, "agent.crt"),
    agentKey: join(dir, "agent.key"),
  };
}

/** The certificates of a caller like kube-apiserver. */
export function callerTls(dir: string): CallerTls {
  return {
    ca: readFileSync(join(dir, "server-ca.crt"), "utf8"),
    cert: readFileSync(join(dir, "client.crt"), "utf8"),
    key: readFileSync(join(dir, "client.key"), "utf8"),
  };
}

/** Options of a command; values of durations must carry their unit. */
export type Flags = Readonly<Record<string, string | number | boolean>>;

/** Options as flags: `udsName` → `--uds-name`. */
export function flags(options: Flags): string[] {
  return Object.entries(options).map(
    ([key, value]) => `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}=${value}`,
  );
}
