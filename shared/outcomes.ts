/**
 * One row for every way a connection can end badly (design: "Outcomes").
 *
 * No other file picks an HTTP status, a SOCKS reply, a log level or a metric label for them. What is no CONNECT, or no
 * upgrade of an agent, has no outcome: it is refused in HTTP's own words (`HTTP_REFUSALS` of each side).
 */

export interface Outcome {
  /** HTTP status of the answer to a caller; `undefined`: no answer can be given. */
  readonly http: number | undefined;
  /** HTTP status of the answer to an agent that asks for a tunnel, where it differs. */
  readonly agentHttp?: number;
  /** SOCKS5 reply (RFC 1928 §6). */
  readonly socks: number;
  /** May another agent of the same cluster be tried, as long as no byte of the stream was sent? */
  readonly retry: boolean;
  readonly level: "info" | "warn" | "error";
  /** RFC 9209 §2.3 error type of the `Proxy-Status` field. */
  readonly proxyStatus: string;
  /** The value of `reason` that Konnectivity's `dial_failure_count` gives the same end. */
  readonly konnectivity: string;
  /** May an agent answer an open with this code? Any other code becomes `internal`. */
  readonly fromAgent?: true;
}

export const OUTCOMES = {
  bad_target: {
    http: 400,
    socks: 0x01,
    retry: false,
    level: "info",
    proxyStatus: "http_request_error",
    konnectivity: "unknown",
  },
  unauthenticated: {
    http: 407,
    agentHttp: 401,
    socks: 0x02,
    retry: false,
    level: "warn",
    proxyStatus: "http_request_denied",
    konnectivity: "unknown",
  },
  forbidden: {
    http: 403,
    socks: 0x02,
    retry: false,
    level: "warn",
    proxyStatus: "http_request_denied",
    konnectivity: "unknown",
    fromAgent: true,
  },
  unknown_cluster: {
    http: 404,
    socks: 0x02,
    retry: false,
    level: "warn",
    proxyStatus: "destination_not_found",
    konnectivity: "no_agent",
  },
  limited: {
    http: 429,
    socks: 0x01,
    retry: false,
    level: "warn",
    proxyStatus: "connection_limit_reached",
    konnectivity: "unknown",
  },
  no_agent: {
    http: 503,
    socks: 0x01,
    retry: false,
    level: "warn",
    proxyStatus: "destination_unavailable",
    konnectivity: "no_agent",
  },
  draining: {
    http: 503,
    socks: 0x01,
    retry: true,
    level: "info",
    proxyStatus: "destination_unavailable",
    konnectivity: "no_agent",
    fromAgent: true,
  },
  overloaded: {
    http: 503,
    socks: 0x01,
    retry: true,
    level: "warn",
    proxyStatus: "connection_limit_reached",
    konnectivity: "unknown",
  },
  dial_refused: {
    http: 502,
    socks: 0x05,
    retry: false,
    level: "info",
    proxyStatus: "connection_refused",
    konnectivity: "error_response",
    fromAgent: true,
  },
  dial_unreachable: {
    http: 502,
    socks: 0x04,
    retry: false,
    level: "info",
    proxyStatus: "destination_ip_unroutable",
    konnectivity: "error_response",
    fromAgent: true,
  },
  dial_name: {
    http: 502,
    socks: 0x04,
    retry: false,
    level: "info",
    proxyStatus: "dns_error",
    konnectivity: "error_response",
    fromAgent: true,
  },
  dial_reset: {
    http: 502,
    socks: 0x01,
    retry: false,
    level: "info",
    proxyStatus: "connection_terminated",
    konnectivity: "error_response",
    fromAgent: true,
  },
  dial_timeout: {
    http: 504,
    socks: 0x06,
    retry: false,
    level: "info",
    proxyStatus: "connection_timeout",
    konnectivity: "backend_dial_timeout",
    fromAgent: true,
  },
  agent_timeout: {
    http: 504,
    socks: 0x01,
    retry: true,
    level: "warn",
    proxyStatus: "connection_timeout",
    konnectivity: "backend_dial_timeout",
  },
  agent_lost: {
    http: 502,
    socks: 0x01,
    retry: true,
    level: "warn",
    proxyStatus: "connection_terminated",
    konnectivity: "backend_close",
  },
  agent_exhausted: {
    http: 503,
    socks: 0x01,
    retry: true,
    level: "warn",
    proxyStatus: "connection_limit_reached",
    konnectivity: "error_response",
    fromAgent: true,
  },
  stalled: {
    http: undefined,
    socks: 0x01,
    retry: false,
    level: "warn",
    proxyStatus: "connection_limit_reached",
    konnectivity: "frontend_close",
  },
  caller_gone: {
    http: undefined,
    socks: 0x01,
    retry: false,
    level: "info",
    proxyStatus: "connection_terminated",
    konnectivity: "frontend_close",
  },
  internal: {
    http: 500,
    socks: 0x01,
    retry: false,
    level: "error",
    proxyStatus: "proxy_internal_error",
    konnectivity: "unknown",
  },
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

/** What is wrong with a refused credential. Programs decide by this word, and people read the sentence beside it. */
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

export interface CulvertErrorOptions extends ErrorOptions {
  /** The agent accepted the stream (yamux ACK) before this end: another agent must not be tried. */
  readonly acknowledged?: boolean;
  /** When it is worth another try, ms from now (RFC 9110 §10.2.3). */
  readonly retryAfterMs?: number;
  /** Present where a credential was refused and a program can tell why. */
  readonly fault?: CredentialFault | undefined;
  /** An agent answered with this end; absent: this process decided it. */
  readonly refusedBy?: "agent";
}

/** A bad end that somebody is told about: `message` is a sentence for a person, without secrets. */
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

  /** May another agent of the same cluster be tried? (design: "Outcomes", retry) */
  get retryable(): boolean {
    return OUTCOMES[this.code].retry && !this.acknowledged;
  }
}

/** Any thrown value as a `CulvertError`; what is not one already is `internal`. */
export function toCulvertError(error: unknown): CulvertError {
  if (error instanceof CulvertError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new CulvertError("internal", message, { cause: error });
}

/**
 * Text from outside made fit for a status line, a header or a log: one line, printable ASCII,
 * bounded (design: "The caller's side", 4).
 */
export function printable(text: string, maxLength = 200): string {
  const clean = text
    .replace(/[^\x20-\x7e]+/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  return clean.length <= maxLength ? clean : `${clean.slice(0, maxLength - 3)}...`;
}
