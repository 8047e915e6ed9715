import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { presentedToken } from "../../shared/http/bearer.ts";
import { certificateVerdict } from "../../shared/tls/identity.ts";
import { DOCTOR } from "../../shared/wire/handshake.ts";
import type { AgentRules } from "./identify.ts";

const NOTHING = "no credential";

/**
 * By what somebody would be known, in few words, all ours: "token", a certificate and what TLS found of it, or neither, as
 * balancers' checks come all day.
 */
export function shownBy(
  socket: Socket,
  { authorization }: Pick<IncomingHttpHeaders, "authorization">,
  rules: Pick<AgentRules, "verifier"> | undefined,
): string {
  const hasToken = presentedToken(authorization) !== undefined;
  if (hasToken && rules?.verifier !== undefined) return "token";
  const verdict = certificateVerdict(socket);
  if (verdict !== undefined) return `certificate ${verdict}`;
  return hasToken ? "token" : NOTHING;
}

/**
 * Is this the second look of a doctor, which asks without a credential who answers here? Anybody can say so. It is no
 * upgrade and shows nothing, so all that a liar gets is one warning less.
 */
export function isDoctorsLook({ upgrade, "user-agent": agent }: IncomingHttpHeaders, shown: string): boolean {
  return upgrade === undefined && shown === NOTHING && agent?.startsWith(`${DOCTOR}/`) === true;
}

/** Kind of an agent's refusal; each has log lines of its own. There are as many as codes times `shownBy`'s words. */
export function refusalKind(code: string | number, shown: string): string {
  return `${code}, ${shown}`;
}
