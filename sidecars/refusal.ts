import { proxyStatus } from "../shared/http/response-fields.ts";
import { printable } from "../shared/outcomes.ts";

/**
 * The kind of a failed dial: a type of RFC 9209 §2.3. It is the label of the metric, and decides the reply of SOCKS and
 * whether another server is tried.
 */
export type RefusalKind = string;

/** A dial that failed, as the client learns of it. `message` is a sentence for people. */
export class Refusal extends Error {
  /** The status of an HTTP answer. */
  readonly status: number;
  readonly kind: RefusalKind;
  /** The whole field `Proxy-Status`. */
  readonly proxyStatus: string;
  /** Another server may answer differently: this one is away, shuts down, or has no agent. */
  readonly isOfServer: boolean;

  constructor(status: number, kind: RefusalKind, message: string, options: RefusalOptions = {}) {
    super(printable(message, 400), options);
    this.status = status;
    this.kind = kind;
    this.proxyStatus = options.proxyStatus ?? proxyStatus({ error: kind }, message);
    this.isOfServer = options.isOfServer ?? status === 503;
  }
}

interface RefusalOptions extends ErrorOptions {
  readonly proxyStatus?: string | undefined;
  readonly isOfServer?: boolean;
}

/** A server could not be reached, or was lost before it answered. */
export function serverAway(sentence: string, cause?: unknown): Refusal {
  return new Refusal(502, "destination_unavailable", sentence, { isOfServer: true, cause });
}

/** A server's answer other than 200, with the sentence of its body or its status line. */
export function refusalOf(status: number, field: string | undefined, sentence: string): Refusal {
  const kind = /;\s*error=([a-z_]+)/.exec((field ?? "").replace(/"[^"]*"/g, ""))?.[1] ?? KINDS.get(status);
  const words = sentence.trim() === "" ? `the server answered with status ${status}` : sentence.trim();
  return new Refusal(status, kind ?? "proxy_internal_error", words, { proxyStatus: field });
}

/** Of servers that send no `Proxy-Status`. */
const KINDS = new Map([
  [403, "http_request_denied"],
  [407, "http_request_denied"],
  [503, "destination_unavailable"],
  [504, "connection_timeout"],
]);

/** Any error as a `Refusal`. */
export function toRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new Refusal(500, "proxy_internal_error", message, { cause: error });
}
