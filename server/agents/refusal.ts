import { type ProxyStatus, proxyStatus } from "../../shared/http/response-fields.ts";
import { agentStatus, CulvertError, type Outcome, outcome, printable } from "../../shared/outcomes.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";

/**
 * What a draining server tells agents about when to come back, s: about as long as its restart takes. They try at once
 * anyway, where another one may stand at the same address; longer, and an orderly restart would cost more than a crash.
 */
export const RETRY_AFTER_S = 1;

/** So many agents came at once that this one must come again. */
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
export type HttpRefusal = keyof typeof HTTP_REFUSALS;

/** A no before the upgrade: plain HTTP, so that an agent's log, or curl, shows the sentence. */
export interface Answer {
  readonly status: number;
  readonly sentence: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly level: Outcome["level"];
  /** Absent: the request itself is at fault. */
  readonly proxy?: ProxyStatus;
}

/** All that is written before the sentence; without the mark an agent takes it for somebody else's. */
export function headersOf({
  sentence,
  headers,
  proxy = { error: "http_request_error" },
}: Answer): Record<string, string> {
  return { ...headers, "proxy-status": proxyStatus(proxy, sentence), connection: "close" };
}

/** How an agent is told its outcome, and anybody else that this is the wrong place. */
export function answerTo(refusal: CulvertError | HttpRefusal, agentPath: string): Answer {
  if (refusal instanceof CulvertError) {
    const { code, message } = refusal;
    const { level, proxyStatus: error } = outcome(code);
    const proxy = { error, fault: refusal.fault };
    const status = agentStatus(code);
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
