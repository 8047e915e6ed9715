import { revealsSecret } from "../basics/text.ts";
import { PORTAL_CURE, placeOf, portalAt } from "../http/portal.ts";
import { parseRetryAfter } from "../http/retry-after.ts";
import { printable } from "../outcomes.ts";
import type { AuthenticationFailed } from "./auth/authentication.ts";
import type { AnswerHead } from "./connect-answer.ts";
import { RouteFault, type RouteFaultCode } from "./fault.ts";

/** What a refusal was about. */
export interface RefusedConnect {
  /** `formatProxy`. */
  readonly at: string;
  /** `host:port` that was asked for. */
  readonly authority: string;
  readonly head: AnswerHead;
  /** The beginning of its body. */
  readonly page: string;
  /** What was sent to the proxy in confidence: an answer may repeat it. */
  readonly secrets: readonly string[];
}

/** A proxy's no to CONNECT, for any status but 2xx and 407. */
export function refusal(refused: RefusedConnect): RouteFault {
  const { at, authority, head } = refused;
  if (isPortal(head.status)) return faultOf("web_page", `${portalAt(at)}: ${PORTAL_CURE}`, refused);
  const [fault, what] = meaning(head.status, authority);
  return faultOf(fault, `the proxy ${at} ${what}`, refused);
}

/** A 407 that nothing can be said to. */
export function authenticationFault(
  { why, message, cause }: AuthenticationFailed,
  refused: RefusedConnect,
): RouteFault {
  const sentence = `the proxy ${refused.at} ${printable(message, MAX_CAUSE)}`;
  return faultOf(`proxy_auth_${why}`, sentence, refused, cause);
}

/** The words of a Kerberos library, with names and paths. */
const MAX_CAUSE = 800;

function faultOf(fault: RouteFaultCode, sentence: string, refused: RefusedConnect, cause?: unknown): RouteFault {
  const { at, head } = refused;
  const backInMs = parseRetryAfter(head.fields.get("retry-after")?.[0]);
  return new RouteFault(fault, `${sentence} (${answerText(refused)})`, {
    at,
    cause,
    ...(backInMs === undefined ? {} : { retryAfterMs: backInMs }),
  });
}

/** Any other answer is given to whom the proxy knows: a user and a password that came along were taken. */
export function asksForLogin(status: number): boolean {
  return status === 401 || status === 407 || isPortal(status);
}

/** A redirection, or 511 (RFC 6585 §6). */
function isPortal(status: number): boolean {
  return (status >= 300 && status < 400) || status === 511;
}

function meaning(status: number, authority: string): readonly [RouteFaultCode, string] {
  if (status === 401 || status === 403 || status === 451) {
    return [
      "proxy_forbidden",
      `does not allow CONNECT to ${authority}: ask its administrators to allow this destination`,
    ];
  }
  if (status === 502 || status === 503 || status === 504) {
    return ["proxy_unavailable", `cannot reach ${authority}: check its name and port as the proxy sees them`];
  }
  if (status === 429 || (status >= 500 && status !== 501 && status !== 505)) {
    return ["proxy_unavailable", `cannot serve CONNECT to ${authority} now`];
  }
  return ["proxy_protocol", `does not take CONNECT to ${authority}: check that it is an HTTP proxy`];
}

/** `403 Forbidden: the words of its page`, or where a portal sends us. */
function answerText({ head, page, secrets }: RefusedConnect): string {
  const shown = (text: string): string => (secrets.some((secret) => revealsSecret(text, secret)) ? "" : text);
  const line = printable(`${head.status} ${shown(head.reason)}`);
  const [location = ""] = isPortal(head.status) ? (head.fields.get("location") ?? []) : [];
  const place = placeOf(shown(location));
  const words = place === "" ? printable(wordsOf(shown(page))) : `to "${place}"`;
  return words === "" ? line : `${line}: ${words}`;
}

/** Of a page of HTML its title, or its text: styles and scripts come first in most, and are words for nobody. */
function wordsOf(page: string): string {
  if (!page.trimStart().startsWith("<")) return page;
  const title = /<title[^>]*>([^<]*)/i.exec(page)?.[1]?.trim();
  if (title !== undefined && title !== "") return title;
  return page.replace(/<(style|script)\b[\s\S]*?(?:<\/\1>|$)/gi, " ").replace(/<[^>]*(?:>|$)/g, " ");
}
