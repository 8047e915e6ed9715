import { revealsSecret } from "../basics/text.ts";
import { CAPTIVE_PORTAL_CURE, captivePortalAt } from "../faults/tunnel-rows.ts";
import { parseRetryAfter, printableLocation } from "../http/response-fields.ts";
import { printable } from "../outcomes.ts";
import type { AuthenticationFailed } from "./auth/authentication.ts";
import type { AnswerHead } from "./connect-answer.ts";
import { RouteFault, type RouteFaultCode } from "./proxy-route.ts";

/** A CONNECT that a proxy has refused. */
export interface RefusedConnect {
  /** `formatProxy`. */
  readonly at: string;
  /** The requested `host:port`. */
  readonly authority: string;
  readonly head: AnswerHead;
  /** The beginning of the body. */
  readonly page: string;
  /** Secrets that were sent to the proxy. Its answer may repeat them. */
  readonly secrets: readonly string[];
}

/** The fault for an answer with any status except 2xx and 407. */
export function refusal(refused: RefusedConnect): RouteFault {
  const { at, authority, head } = refused;
  if (isCaptivePortal(head.status))
    return faultOf("web_page", `${captivePortalAt(at)}: ${CAPTIVE_PORTAL_CURE}`, refused);
  const [fault, what] = meaning(head.status, authority);
  return faultOf(fault, `the proxy ${at} ${what}`, refused);
}

/** The fault for a 407 that cannot be answered. */
export function authenticationFault(
  { why, message, cause }: AuthenticationFailed,
  refused: RefusedConnect,
): RouteFault {
  const sentence = `the proxy ${refused.at} ${printable(message, MAX_CAUSE)}`;
  return faultOf(`proxy_auth_${why}`, sentence, refused, cause);
}

/** Maximum length of a sentence that contains the message of a Kerberos library. */
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

/** Does this answer ask for a login? Any other answer means that the proxy has accepted the credentials. */
export function asksForLogin(status: number): boolean {
  return status === 401 || status === 407 || isCaptivePortal(status);
}

/** A redirection, or 511 (RFC 6585 §6). */
function isCaptivePortal(status: number): boolean {
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

/** `403 Forbidden: text of its page`, or the address of a captive portal. */
function answerText({ head, page, secrets }: RefusedConnect): string {
  const shown = (text: string): string => (secrets.some((secret) => revealsSecret(text, secret)) ? "" : text);
  const line = printable(`${head.status} ${shown(head.reason)}`);
  const [location = ""] = isCaptivePortal(head.status) ? (head.fields.get("location") ?? []) : [];
  const redirect = printableLocation(shown(location));
  const text = redirect === "" ? printable(textOfPage(shown(page))) : `to "${redirect}"`;
  return text === "" ? line : `${line}: ${text}`;
}

/** The title of an HTML page, or its text without styles and scripts, which come first in most pages. */
function textOfPage(page: string): string {
  if (!page.trimStart().startsWith("<")) return page;
  const title = /<title[^>]*>([^<]*)/i.exec(page)?.[1]?.trim();
  if (title !== undefined && title !== "") return title;
  return page.replace(/<(style|script)\b[\s\S]*?(?:<\/\1>|$)/gi, " ").replace(/<[^>]*(?:>|$)/g, " ");
}
