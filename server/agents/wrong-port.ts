import { HANDSHAKE_RECORD } from "../../shared/listen/client-hello.ts";
import { readProxyHeader } from "../../shared/listen/proxy-protocol.ts";
import { HTTP_2 } from "../listeners/request-reader.ts";
import type { Answer } from "./refusal.ts";

/** What those hear on an agents' port who are no agents, or speak something else there. */

/** Whoever sends a CONNECT takes us for the callers' port. */
export const CALLER: Answer = {
  status: 405,
  sentence: "this is the port of culvert's agents; callers come to --server-port",
  headers: { allow: "GET" },
  level: "info",
};

const NO_HTTP: Answer = {
  status: 400,
  sentence: "this is no HTTP/1.1: agents upgrade to websocket here",
  headers: {},
  level: "info",
};

/**
 * Whoever speaks HTTP/2 without asking for HTTP/1.1 is a client of gRPC, and on this port most often a
 * konnectivity-agent in the middle of a migration.
 */
const GRPC: Answer = {
  status: 505,
  sentence:
    "the client speaks gRPC (HTTP/2), as konnectivity-agent does: this is culvert, whose server takes culvert agents only (docs/konnectivity.md)",
  headers: {},
  level: "warn",
};

const TLS: Answer = {
  ...NO_HTTP,
  sentence: "this is TLS, and HTTP is spoken here: TLS ends in front of this port, or goes to --agent-port",
};

const PROXY_HEADER: Answer = {
  ...NO_HTTP,
  sentence:
    "this is a PROXY header, and none is expected here (--agent-proxy-protocol, --agent-insecure-proxy-protocol)",
};

/** What to say to bytes that Node's parser has refused; `undefined`: nobody is there any more to hear it. */
export function notUnderstood(
  error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer },
  headerLimit: number,
): Answer | undefined {
  const { code = "", rawPacket } = error;
  if (code === "HPE_HEADER_OVERFLOW") {
    const sentence = `the request header is larger than ${headerLimit} bytes (--header-limit): is the token a token?`;
    return { status: 431, sentence, headers: {}, level: "info" };
  }
  if (code === HTTP_2) return GRPC;
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  if (rawPacket?.[0] === HANDSHAKE_RECORD) return TLS;
  const bringsProxy = rawPacket !== undefined && readProxyHeader(rawPacket).state === "read";
  return bringsProxy ? PROXY_HEADER : NO_HTTP;
}
