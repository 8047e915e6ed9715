import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { presentedToken } from "../../shared/net/bearer.ts";
import { certificateVerdict } from "../../shared/net/identity.ts";
import type { AgentRules } from "./identify.ts";

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
  return hasToken ? "token" : "no credential";
}

/** What has log lines of its own among the refusals of agents: there are as many kinds as codes times `shownBy`'s words. */
export function refusalKind(code: string | number, shown: string): string {
  return `${code}, ${shown}`;
}
