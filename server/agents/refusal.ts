import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import { answerAndEnd, REST_OF_LARGE_HEADER, refusalText } from "../../shared/http/connection.ts";
import { type ProxyStatus, proxyStatus } from "../../shared/http/response-fields.ts";
import { agentStatus, CulvertError, type Outcome, outcome, printable } from "../../shared/outcomes.ts";
import { CERTIFICATE_CHALLENGE, certificateVerdict } from "../../shared/tls/identity.ts";
import { DOCTOR, SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { PeerRules } from "../listeners/authenticate-peer.ts";

/**
 * When agents of a draining server shall come back, s: about as long as its restart takes. They try at once anyway,
 * since another server may listen at the same address; a longer time would make an orderly restart cost more than a
 * crash.
 */
export const RETRY_AFTER_S = 1;

/** Too many agents have connected at once, and this one has to come again. */
export class TurnedAway extends CulvertError {
  constructor(backInMs: number) {
    super("overloaded", "more agents connect than this server has time for", { retryAfterMs: backInMs });
  }
}

/** Requests that are no upgrade of an agent: they never become a tunnel, so they have no outcome. */
const HTTP_REFUSALS = {
  path: { status: 404, sentence: (path: string) => `agents connect at ${path} (--agent-path)`, headers: {} },
  upgrade: {
    status: 426,
    sentence: () => `this is the port of culvert's agents: upgrade to websocket, subprotocol ${SUBPROTOCOL}`,
    headers: { upgrade: "websocket" },
  },
} as const;
export type AgentHttpRefusal = keyof typeof HTTP_REFUSALS;

/** A refusal before the upgrade: plain HTTP, so that an agent's log, or curl, shows the sentence. */
export interface AgentAnswer {
  readonly status: number;
  readonly sentence: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly level: Outcome["level"];
  /** Absent: the request itself is at fault. */
  readonly proxy?: ProxyStatus;
}

/** Writes the answer, which is the last thing on the connection. */
export function answerRaw(socket: Duplex, answer: AgentAnswer): void {
  const { status, sentence } = answer;
  const text = refusalText(status, headersOf(answer), sentence);
  answerAndEnd(socket, text, status === 431 ? REST_OF_LARGE_HEADER : undefined);
}

/** Without Proxy-Status an agent would take the answer for one of a proxy on its path. */
function headersOf({
  sentence,
  headers,
  proxy = { error: "http_request_error" },
}: AgentAnswer): Record<string, string> {
  return { ...headers, "proxy-status": proxyStatus(proxy, sentence) };
}

/** The answer to an outcome, or to a request that is no upgrade. */
export function answerTo(refusal: CulvertError | AgentHttpRefusal, agentPath: string): AgentAnswer {
  if (refusal instanceof CulvertError) {
    const { code, message } = refusal;
    const { level, proxyStatus: error } = outcome(code);
    const status = agentStatus(code);
    const proxy = { error, fault: refusal.fault };
    const backInS = backInSeconds(refusal);
    if (backInS === undefined) return { status, sentence: printable(message), headers: {}, level, proxy };
    const sentence = `${printable(message)}: come back in ${backInS} s`;
    return { status, sentence, headers: { "retry-after": String(backInS) }, level, proxy };
  }
  const { status, sentence, headers } = HTTP_REFUSALS[refusal];
  return { status, sentence: sentence(agentPath), headers, level: "info" };
}

function backInSeconds({ code, retryAfterMs }: CulvertError): number | undefined {
  if (retryAfterMs !== undefined) return Math.max(1, Math.ceil(retryAfterMs / 1_000));
  return code === "draining" ? RETRY_AFTER_S : undefined;
}

/**
 * The credential that a 401 asks for (RFC 9110 §15.5.2). RFC 6750 §3.1: a peer that has sent a token reads that it is
 * invalid, a peer without a credential reads of no error.
 */
export function challenge({ verifier }: Pick<PeerRules, "verifier">, authorization: string | undefined): string {
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
  { authorization }: Pick<IncomingHttpHeaders, "authorization">,
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
