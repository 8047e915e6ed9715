import {
  type Authenticator,
  credsAuthenticator,
  type NodeConnectionOptions,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { loadClientTls } from "../../shared/tls/tls-material.ts";
import type { ServerOptions } from "../options/options.ts";

type NatsOptions = Pick<
  ServerOptions,
  "serverId" | "directory" | "directoryCredentials" | "directoryCaCert" | "directoryCert" | "directoryKey"
>;

/** Time for one NATS server to be reached, ms. */
const DIAL_MS = 3_000;
/** A connection on which two pings in a row are not answered is lost, ms between them. */
const PING_MS = 2_000;
const MAX_PINGS = 2;

/**
 * The options of one connection. Files are read each time, so that renewed ones count from the next connection on.
 * Throws what is wrong with a file.
 */
export function connectionOptions(options: NatsOptions): NodeConnectionOptions {
  const { serverId, directory, directoryCaCert: caFile, directoryCert: certFile, directoryKey: keyFile } = options;
  const { ca, cert, key } = loadClientTls({ caFile, certFile, keyFile });
  const wantsTls = caFile !== "" || certFile !== "" || directory.some((url) => url.startsWith("tls:"));
  const authenticator = readCredentials(options.directoryCredentials);
  return {
    servers: directory.map((url) => new URL(url).host),
    name: `culvert ${serverId}`,
    ...{ timeout: DIAL_MS, pingInterval: PING_MS, maxPingOut: MAX_PINGS },
    // The directory itself connects again, with nothing that has waited meanwhile.
    reconnect: false,
    // Servers that NATS names by itself are not those that the operator has named.
    ignoreClusterUpdates: true,
    // A server does not answer itself.
    noEcho: true,
    noAsyncTraces: true,
    ...(wantsTls && { tls: { ...(ca && { ca }), ...(cert && key && { cert, key }) } }),
    ...(authenticator && { authenticator }),
  };
}

/** A .creds file of NATS (a JWT and the seed of its key), or one line `USER:PASSWORD`. */
function readCredentials(path: string): Authenticator | undefined {
  if (path === "") return undefined;
  const content = readBoundedSync(path);
  const text = content.toString("utf8").trim();
  if (text.includes("-----BEGIN")) return credsAuthenticator(content);
  const colon = text.indexOf(":");
  if (colon < 1 || text.includes("\n")) {
    throw new Error(`${path} is neither a .creds file of NATS nor one line USER:PASSWORD`);
  }
  return usernamePasswordAuthenticator(text.slice(0, colon), text.slice(colon + 1));
}
