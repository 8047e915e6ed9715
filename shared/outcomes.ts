/**
 * Outcomes: one row for each way in which a CONNECT can fail. No other file chooses an HTTP status, a log level or a
 * metric label for them. A request that is neither a CONNECT nor an agent's upgrade has no outcome:
 * `HTTP_REFUSALS` has the answers to callers, and `RequestRefusal` those to agents.
 */
export interface Outcome {
  /** HTTP status of the answer to a caller; `undefined`: no answer can be given. */
  readonly http: number | undefined;
  /** HTTP status of the answer to an agent that asks for a tunnel, if it differs. */
  readonly agentHttp?: number;
  /** Whether another agent of the same cluster may be tried, as long as no byte of the caller was sent to one. */
  readonly retry: boolean;
  readonly level: "info" | "warn" | "error";
  /** Error type of the `Proxy-Status` field (RFC 9209 §2.3). */
  readonly proxyStatus: string;
  /** Value of `reason` in Konnectivity's `dial_failure_count` for the same failure. */
  readonly konnectivity: string;
  /** Whether an agent may answer an open with this code. Any other code becomes `internal`. */
  readonly fromAgent?: true;
}

/** The fields that most rows share: no retry, no reason of Konnectivity. */
const COMMON = { retry: false, konnectivity: "unknown" } as const;
/** Another agent may be tried. */
const RETRIED = { ...COMMON, retry: true, level: "warn" } as const;
/** No answer can be given. */
const GONE = { ...COMMON, http: undefined, konnectivity: "frontend_close" } as const;
/** An agent tried the target and failed. */
const DIAL = { ...COMMON, http: 502, level: "info", konnectivity: "error_response", fromAgent: true } as const;

export const OUTCOMES = {
  bad_target: { ...COMMON, http: 400, level: "info", proxyStatus: "http_request_error" },
  unauthenticated: { ...COMMON, http: 407, agentHttp: 401, level: "warn", proxyStatus: "http_request_denied" },
  forbidden: { ...COMMON, http: 403, level: "warn", proxyStatus: "http_request_denied", fromAgent: true },
  unknown_cluster: {
    ...COMMON,
    http: 404,
    level: "warn",
    proxyStatus: "destination_not_found",
    konnectivity: "no_agent",
  },
  limited: { ...COMMON, http: 429, level: "warn", proxyStatus: "connection_limit_reached" },
  no_agent: { ...COMMON, http: 503, level: "warn", proxyStatus: "destination_unavailable", konnectivity: "no_agent" },
  draining: {
    ...RETRIED,
    http: 503,
    level: "info",
    proxyStatus: "destination_unavailable",
    konnectivity: "no_agent",
    fromAgent: true,
  },
  overloaded: { ...RETRIED, http: 503, proxyStatus: "connection_limit_reached" },
  unaudited: { ...RETRIED, http: 503, proxyStatus: "proxy_internal_error" },
  dial_refused: { ...DIAL, proxyStatus: "connection_refused" },
  dial_unreachable: { ...DIAL, proxyStatus: "destination_ip_unroutable" },
  dial_name: { ...DIAL, proxyStatus: "dns_error" },
  dial_reset: { ...DIAL, proxyStatus: "connection_terminated" },
  dial_timeout: { ...DIAL, http: 504, proxyStatus: "connection_timeout", konnectivity: "backend_dial_timeout" },
  agent_timeout: { ...RETRIED, http: 504, proxyStatus: "connection_timeout", konnectivity: "backend_dial_timeout" },
  agent_lost: { ...RETRIED, http: 502, proxyStatus: "connection_terminated", konnectivity: "backend_close" },
  agent_exhausted: {
    ...RETRIED,
    http: 503,
    proxyStatus: "connection_limit_reached",
    konnectivity: "error_response",
    fromAgent: true,
  },
  peer_lost: { ...RETRIED, http: 502, proxyStatus: "connection_terminated", konnectivity: "backend_close" },
  server_lost: { ...RETRIED, http: 502, proxyStatus: "connection_terminated", konnectivity: "backend_close" },
  stalled: { ...GONE, level: "warn", proxyStatus: "connection_limit_reached" },
  caller_gone: { ...GONE, level: "info", proxyStatus: "connection_terminated" },
  internal: { ...COMMON, http: 500, level: "error", proxyStatus: "proxy_internal_error" },
} as const satisfies Record<string, Outcome>;

export type OutcomeCode = keyof typeof OUTCOMES;

/** The row of a code, without the literal types that `as const` gives each cell. */
export function outcome(code: OutcomeCode): Outcome {
  return OUTCOMES[code];
}

/** HTTP status of the answer to an agent that asks for a tunnel. */
export function agentStatus(code: OutcomeCode): number {
  const { agentHttp, http } = outcome(code);
  return agentHttp ?? http ?? 500;
}

export function isOutcomeCode(value: unknown): value is OutcomeCode {
  return typeof value === "string" && Object.hasOwn(OUTCOMES, value);
}

/** The fault of a refused credential. Programs decide by this word; people read the sentence next to it. */
export const CREDENTIAL_FAULTS = [
  "certificate_missing",
  "certificate_expired",
  "certificate_not_yet_valid",
  "token_expired",
  "token_not_yet_valid",
] as const;
export type CredentialFault = (typeof CREDENTIAL_FAULTS)[number];

/** The word in a field or message from a peer; `undefined` for a word of a later version. */
export function credentialFault(word: unknown): CredentialFault | undefined {
  return CREDENTIAL_FAULTS.find((known) => known === word);
}

interface CulvertErrorOptions extends ErrorOptions {
  /** The deadline passed after the agent's ACK of the stream: it may still be dialling, so no other agent is tried. */
  readonly acknowledged?: boolean;
  /** Time until another try makes sense, ms (RFC 9110 §10.2.3). */
  readonly retryAfterMs?: number;
  /** Set if a credential was refused for a reason that has a word. */
  readonly fault?: CredentialFault | undefined;
  /** Set if an agent answered with this failure; otherwise this process decided it. */
  readonly refusedBy?: "agent";
}

/** A failure with its outcome. `message` is a sentence for people, without secrets. */
export class CulvertError extends Error {
  override readonly name = "CulvertError";
  readonly code: OutcomeCode;
  readonly acknowledged: boolean;
  readonly retryAfterMs: number | undefined;
  readonly fault: CredentialFault | undefined;
  readonly refusedBy: "agent" | undefined;

  constructor(code: OutcomeCode, message: string, options: CulvertErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.acknowledged = options.acknowledged ?? false;
    this.retryAfterMs = options.retryAfterMs;
    this.fault = options.fault;
    this.refusedBy = options.refusedBy;
  }

  /** Whether another agent of the same cluster may be tried. */
  get retryable(): boolean {
    return OUTCOMES[this.code].retry && !this.acknowledged;
  }
}

/** Any thrown value as a `CulvertError`; other errors become `internal`. */
export function toCulvertError(error: unknown): CulvertError {
  if (error instanceof CulvertError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new CulvertError("internal", message, { cause: error });
}

/**
 * Text from outside in a form that is safe in a status line, a header or a log: one line of printable ASCII, bounded.
 */
export function printable(text: string, maxLength = 200): string {
  const clean = text
    .replace(/[^\x20-\x7e]+/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  return clean.length <= maxLength ? clean : `${clean.slice(0, maxLength - 3)}...`;
}
