import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import { answerAndEnd, REST_OF_LARGE_HEADER, refusalText } from "../../shared/http/connection.ts";
import { type ProxyStatus, proxyStatus } from "../../shared/http/response-fields.ts";
import { HANDSHAKE_RECORD } from "../../shared/listen/client-hello.ts";
import { valuesOf } from "../../shared/listen/first-request.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { readProxyHeader } from "../../shared/listen/preface.ts";
import { agentStatus, CulvertError, type Outcome, outcome, printable } from "../../shared/outcomes.ts";
import { CERTIFICATE_CHALLENGE, certificateVerdict } from "../../shared/tls/identity.ts";
import { DOCTOR, SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import type { PeerRules } from "../listeners/authenticate-peer.ts";

// Why a request on an agents' port gets no tunnel, as far as the request says it, and the answer to it.

interface RefusalOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly level?: Outcome["level"];
}

/**
 * A request that is malformed, or no upgrade of an agent. It never becomes a tunnel, so it has a status of its own and
 * not that of an outcome; `code` gives only the name in `Proxy-Status`.
 */
class RequestRefusal extends CulvertError {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly level: Outcome["level"];

  constructor(status: number, sentence: string, { headers = {}, level = "info" }: RefusalOptions = {}) {
    super("bad_target", sentence);
    this.status = status;
    this.headers = headers;
    this.level = level;
  }
}

/** More header lines than an agent, a proxy and a balancer write together. */
const MOST_LINES = 100;

/**
 * A fault of a request that is found before the peer is authenticated. Strict where a proxy in front could read the
 * request in another way (RFC 9112 §11.2), and where no agent sends such a request.
 */
export function requestFault(
  { httpVersion, rawHeaders }: { readonly httpVersion: string; readonly rawHeaders: readonly string[] },
  isUpgrade: boolean,
): RequestRefusal | undefined {
  const values = (name: string): string[] => valuesOf(rawHeaders, name);
  if (httpVersion !== "1.1")
    return new RequestRefusal(505, `HTTP/${httpVersion} is not spoken here: agents upgrade by HTTP/1.1`);
  if (rawHeaders.length > 2 * MOST_LINES)
    return new RequestRefusal(431, `the request has more than ${MOST_LINES} header lines`);
  if (values("host").length !== 1) return new RequestRefusal(400, "a request needs one Host here");
  if (values("authorization").length > 1)
    return new RequestRefusal(400, "the request has two Authorization lines: send one");
  if (!isUpgrade) return undefined;
  const ofBody = ["content-length", "transfer-encoding", "expect"].find((name) => values(name).length > 0);
  if (ofBody !== undefined) return new RequestRefusal(400, `an upgrade has no body: leave ${ofBody} out`);
  if (values("sec-websocket-version").join() === "13") return undefined;
  // RFC 6455 §4.4.
  const headers = { upgrade: "websocket", "sec-websocket-version": "13" };
  return new RequestRefusal(426, "Sec-WebSocket-Version must be 13", { headers });
}

/** Refuses the page of a browser, which could open a tunnel with the credential of the browser's user. */
export function originFault(rawHeaders: readonly string[], allowed: readonly string[]): RequestRefusal | undefined {
  const isRefused = valuesOf(rawHeaders, "origin").some((origin) => !allowed.includes(origin));
  return isRefused
    ? new RequestRefusal(403, "requests with this Origin are refused (--agent-allowed-origins)")
    : undefined;
}

// ── Host ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** When a cluster that is at its limit may take handshakes again, ms. */
const LIMITED_RETRY_MS = 1_000;

/**
 * The virtual host that a request's Host names, for a client from `address`. The names are those of a ClientHello; the
 * name gives no rights, which only a credential does. Throws a refusal.
 */
export function findByHost(name: string, address: string, hosts: VirtualHosts<ClusterVirtualHost>): ClusterVirtualHost {
  if (name === "") throw new RequestRefusal(400, "a request needs one Host here: by it the cluster is found");
  const host = hosts.single ?? hosts.find(name);
  if (host === undefined) throw new RequestRefusal(421, `no cluster has the name "${printable(name, 100)}" (Host)`);
  // The WebSocket may carry a TLS handshake.
  const budget = host.handshakes.budgetFor(address);
  if (budget.take()) return host;
  throw new CulvertError("limited", budget.exhausted ?? "the cluster is at its limit", {
    retryAfterMs: LIMITED_RETRY_MS,
  });
}

/** Host without its port, as names in a ClientHello are written. */
export function hostName({ headers }: { readonly headers: IncomingHttpHeaders }): string {
  return (headers.host ?? "").replace(/:\d*$/, "");
}

/** Refuses a request whose SNI and Host name different clusters: a proxy in front may read the other one. */
export function otherName(cluster: string): RequestRefusal {
  const sentence = `Host names cluster "${cluster}", and the connection came to another one by its server name (SNI)`;
  return new RequestRefusal(421, sentence, { level: "warn" });
}

// ── peers that are no agents, or send no HTTP ──────────────────────────────────────────────────────────────────────

/** A peer that sends a CONNECT takes this port for the callers' port. */
export function callersRequest(): RequestRefusal {
  const sentence = "this is the port of culvert's agents; callers come to --server-port";
  return new RequestRefusal(405, sentence, { headers: { allow: "GET" } });
}

export function otherPath(agentPath: string): RequestRefusal {
  return new RequestRefusal(404, `agents connect at ${agentPath} (--agent-path)`);
}

export function noUpgrade(): RequestRefusal {
  const sentence = `this is the port of culvert's agents: upgrade to websocket, subprotocol ${SUBPROTOCOL}`;
  return new RequestRefusal(426, sentence, { headers: { upgrade: "websocket" } });
}

export function noHttp2(): RequestRefusal {
  const sentence = "the client speaks HTTP/2, and konnectivity-agents connect to --agent-port only";
  return new RequestRefusal(505, sentence, { level: "warn" });
}

const NO_HTTP = "this is no HTTP/1.1: agents upgrade to websocket here";
const TLS = "this is TLS, and HTTP is spoken here: TLS ends in front of this port, or goes to --agent-port";
const PROXY_HEADER =
  "this is a PROXY header, and none is expected here (--agent-proxy-protocol, --agent-insecure-proxy-protocol)";

/** The refusal of bytes that Node's parser has refused; `undefined`: the peer has gone. */
export function parseRefusal(
  error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer },
  headerLimit: number,
): RequestRefusal | undefined {
  const { code = "", rawPacket } = error;
  if (code === "HPE_HEADER_OVERFLOW") {
    const sentence = `the request header is larger than ${headerLimit} bytes (--header-limit): check what the token file holds`;
    return new RequestRefusal(431, sentence);
  }
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  if (rawPacket?.[0] === HANDSHAKE_RECORD) return new RequestRefusal(400, TLS);
  const hasProxyHeader = rawPacket !== undefined && readProxyHeader(rawPacket).state === "read";
  return new RequestRefusal(400, hasProxyHeader ? PROXY_HEADER : NO_HTTP);
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

// ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * When agents of a draining server shall come back, s: about as long as its restart takes. They try at once anyway,
 * since another server may listen at the same address; a longer time would make an orderly restart cost more than a
 * crash.
 */
export const RETRY_AFTER_S = 1;

/** An answer before the upgrade: plain HTTP, so that an agent's log, or curl, shows the sentence. */
interface AgentAnswer extends Required<RefusalOptions> {
  readonly status: number;
  readonly sentence: string;
  readonly proxy: ProxyStatus;
}

/** The answer to a refusal. `host`: whose credential a 401 asks for; `authorization`: what the peer has sent. */
export function answerTo(
  refusal: CulvertError,
  host?: Pick<PeerRules, "verifier">,
  authorization?: string,
): AgentAnswer {
  const { code, message, fault } = refusal;
  const row = outcome(code);
  const { status, level, headers } =
    refusal instanceof RequestRefusal ? refusal : { status: agentStatus(code), level: row.level, headers: {} };
  const backInS = backInSeconds(refusal);
  return {
    status,
    level,
    sentence: `${printable(message)}${backInS === undefined ? "" : `: come back in ${backInS} s`}`,
    headers: {
      ...headers,
      ...(backInS !== undefined && { "retry-after": String(backInS) }),
      ...(status === 401 && host !== undefined && { "www-authenticate": challenge(host, authorization) }),
    },
    proxy: { error: row.proxyStatus, fault },
  };
}

/** Writes the answer, which is the last thing on the connection. */
export function answerRaw(socket: Duplex, answer: AgentAnswer): void {
  const { status, sentence, proxy } = answer;
  // Without Proxy-Status an agent would take the answer for one of a proxy on its path.
  const headers = { ...answer.headers, "proxy-status": proxyStatus(proxy, sentence) };
  const text = refusalText(status, headers, sentence);
  answerAndEnd(socket, text, status === 431 ? REST_OF_LARGE_HEADER : undefined);
}

function backInSeconds({ code, retryAfterMs }: CulvertError): number | undefined {
  if (retryAfterMs !== undefined) return Math.max(1, Math.ceil(retryAfterMs / 1_000));
  return code === "draining" ? RETRY_AFTER_S : undefined;
}

/**
 * The credential that a 401 asks for (RFC 9110 §15.5.2). RFC 6750 §3.1: a peer that has sent a token reads that it is
 * invalid, a peer without a credential reads of no error.
 */
function challenge({ verifier }: Pick<PeerRules, "verifier">, authorization: string | undefined): string {
  if (verifier === undefined) return CERTIFICATE_CHALLENGE;
  return presentedToken(authorization) === undefined ? BEARER_CHALLENGE : `${BEARER_CHALLENGE}, error="invalid_token"`;
}

const NO_CREDENTIAL = "no credential";

/**
 * The kind of credential that a peer has shown, in a few words: "token", a certificate with the result of TLS, or
 * neither, like the checks of balancers.
 */
export function shownCredential(
  socket: Socket,
  { authorization }: IncomingHttpHeaders,
  rules: Pick<PeerRules, "verifier"> | undefined,
): string {
  const hasToken = presentedToken(authorization) !== undefined;
  if (hasToken && rules?.verifier !== undefined) return "token";
  const verdict = certificateVerdict(socket);
  if (verdict !== undefined) return `certificate ${verdict}`;
  return hasToken ? "token" : NO_CREDENTIAL;
}

/**
 * Whether this is the request by which a doctor finds out who answers here, without a credential. Any peer can claim to
 * be a doctor; as the request is no upgrade, the claim only saves a warning.
 */
export function isDoctorRequest({ upgrade, "user-agent": agent }: IncomingHttpHeaders, shown: string): boolean {
  return upgrade === undefined && shown === NO_CREDENTIAL && agent?.startsWith(`${DOCTOR}/`) === true;
}

/** The kind of a refusal, by which log lines are throttled: as many as codes times the words of `shownCredential`. */
export function refusalKind(code: string | number, shown: string): string {
  return `${code}, ${shown}`;
}
