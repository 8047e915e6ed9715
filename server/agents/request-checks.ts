import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { HANDSHAKE_RECORD } from "../../shared/listen/client-hello.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { readProxyHeader } from "../../shared/listen/preface.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { HTTP_2, valuesOf } from "../listeners/request-reader.ts";
import type { AgentAnswer } from "./refusal.ts";

// Checks of a request on an agents' port that need nothing but the request.

/** More header lines than an agent, a proxy and a balancer write together. */
const MOST_LINES = 100;

export interface RequestFacts {
  readonly httpVersion: string;
  /** Names and values in turn. Node's `headers` would drop or join repeated names. */
  readonly rawHeaders: readonly string[];
  /** It asks for a WebSocket. */
  readonly isUpgrade: boolean;
}

/**
 * A fault of a request that is found before the peer is authenticated. Strict where a proxy in front could read the
 * request in another way (RFC 9112 §11.2), and where no agent sends such a request.
 */
export function requestFault({ httpVersion, rawHeaders, isUpgrade }: RequestFacts): AgentAnswer | undefined {
  const values = (name: string): string[] => valuesOf(rawHeaders, name);
  if (httpVersion !== "1.1") return refusal(505, `HTTP/${httpVersion} is not spoken here: agents upgrade by HTTP/1.1`);
  if (rawHeaders.length > 2 * MOST_LINES) return refusal(431, `the request has more than ${MOST_LINES} header lines`);
  if (values("host").length !== 1) return refusal(400, "a request needs one Host here");
  if (values("authorization").length > 1) return refusal(400, "the request has two Authorization lines: send one");
  if (!isUpgrade) return undefined;
  const ofBody = ["content-length", "transfer-encoding", "expect"].find((name) => values(name).length > 0);
  if (ofBody !== undefined) return refusal(400, `an upgrade has no body: leave ${ofBody} out`);
  if (values("sec-websocket-version").join() === "13") return undefined;
  // RFC 6455 §4.4.
  const headers = { upgrade: "websocket", "sec-websocket-version": "13" };
  return { ...refusal(426, "Sec-WebSocket-Version must be 13"), headers };
}

/** Refuses the page of a browser, which could open a tunnel with the credential of the browser's user. */
export function originFault(rawHeaders: readonly string[], allowed: readonly string[]): AgentAnswer | undefined {
  const isRefused = valuesOf(rawHeaders, "origin").some((origin) => !allowed.includes(origin));
  return isRefused ? refusal(403, "requests with this Origin are refused (--agent-allowed-origins)") : undefined;
}

// ── Host ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** When a cluster that is at its limit may take handshakes again, ms. */
const LIMITED_RETRY_MS = 1_000;

/**
 * The virtual host that a request's Host names, for a client from `address`. The names are those of a ClientHello; the
 * name gives no rights, which only a credential does.
 */
export function findByHost(
  { rawHeaders }: Pick<IncomingMessage, "rawHeaders">,
  address: string,
  hosts: VirtualHosts<ClusterVirtualHost>,
): ClusterVirtualHost | CulvertError | AgentAnswer {
  const [value, ...others] = valuesOf(rawHeaders, "host");
  // With two of them, a proxy in front could read another one than this server (RFC 9112 §3.2).
  if (value === undefined || value === "" || others.length > 0) {
    return refusal(400, "a request needs one Host here: by it the cluster is found");
  }
  const name = hostName(value);
  const host = hosts.single ?? hosts.find(name);
  if (host === undefined) return refusal(421, `no cluster has the name "${printable(name, 100)}" (Host)`);
  // The WebSocket may carry a TLS handshake.
  const budget = host.handshakeBudget(address);
  if (budget.take()) return host;
  return new CulvertError("limited", budget.exhausted ?? "the cluster is at its limit", {
    retryAfterMs: LIMITED_RETRY_MS,
  });
}

/** Host without its port, as names in a ClientHello are written. */
export function hostName(host: string): string {
  return host.replace(/:\d*$/, "");
}

/** Refuses a request whose SNI and Host lead to different clusters: a proxy in front may read the other one. */
export function otherName(cluster: string): AgentAnswer {
  const sentence = `Host names cluster "${cluster}", and the connection came to another one by its server name (SNI)`;
  return { ...refusal(421, sentence), level: "warn" };
}

// ── peers that are no agents, or send no HTTP ──────────────────────────────────────────────────────────────────────

/** A peer that sends a CONNECT takes this port for the callers' port. */
export const CALLER: AgentAnswer = {
  ...refusal(405, "this is the port of culvert's agents; callers come to --server-port"),
  headers: { allow: "GET" },
};

/**
 * A peer that speaks HTTP/2 is a client of gRPC, and on this port most often a konnectivity-agent in the middle of a
 * migration.
 */
const GRPC: AgentAnswer = {
  ...refusal(
    505,
    "the client speaks gRPC (HTTP/2), as konnectivity-agent does: this is culvert, whose server takes culvert agents only (docs/konnectivity.md)",
  ),
  level: "warn",
};
const NO_HTTP = refusal(400, "this is no HTTP/1.1: agents upgrade to websocket here");
const TLS = refusal(
  400,
  "this is TLS, and HTTP is spoken here: TLS ends in front of this port, or goes to --agent-port",
);
const PROXY_HEADER = refusal(
  400,
  "this is a PROXY header, and none is expected here (--agent-proxy-protocol, --agent-insecure-proxy-protocol)",
);

/** The answer to bytes that Node's parser has refused; `undefined`: the peer has gone. */
export function parseErrorAnswer(
  error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer },
  headerLimit: number,
): AgentAnswer | undefined {
  const { code = "", rawPacket } = error;
  if (code === "HPE_HEADER_OVERFLOW") {
    return refusal(
      431,
      `the request header is larger than ${headerLimit} bytes (--header-limit): is the token a token?`,
    );
  }
  if (code === HTTP_2) return GRPC;
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  if (rawPacket?.[0] === HANDSHAKE_RECORD) return TLS;
  const hasProxyHeader = rawPacket !== undefined && readProxyHeader(rawPacket).state === "read";
  return hasProxyHeader ? PROXY_HEADER : NO_HTTP;
}

// ── certificates in headers ────────────────────────────────────────────────────────────────────────────────────────

/**
 * Headers by which balancers pass a client's certificate on: Envoy, nginx, AWS, HAProxy, Google Cloud, and RFC 9440.
 */
const CERTIFICATE_HEADERS: readonly RegExp[] = [
  /^x-forwarded-(?:tls-)?client-cert/,
  /^x-amzn-mtls-clientcert/,
  /^(?:x-)?ssl-client-/,
  /^x-client-cert/,
  /^client-cert(?:-chain)?$/,
];

/**
 * The header by which a balancer passes on a client certificate. It is never believed: a peer that bypasses the
 * balancer, or whose headers the balancer passes on, could write it, too.
 */
export function claimedCertificate(headers: IncomingHttpHeaders): string | undefined {
  return Object.keys(headers).find((name) => CERTIFICATE_HEADERS.some((header) => header.test(name)));
}

function refusal(status: number, sentence: string): AgentAnswer {
  return { status, sentence, headers: {}, level: "info" };
}
