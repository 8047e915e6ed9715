import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import { CERTIFICATE_CHALLENGE } from "../../shared/tls/identity.ts";
import type { AgentRules } from "./identify.ts";

/**
 * What an agent is asked for that could not prove who it is (RFC 9110 §15.5.2). RFC 6750 §3.1: whoever has brought a token
 * hears that it is none, whoever has brought nothing hears no fault.
 */
export function challenge({ verifier }: Pick<AgentRules, "verifier">, authorization: string | undefined): string {
  if (verifier === undefined) return CERTIFICATE_CHALLENGE;
  return presentedToken(authorization) === undefined ? BEARER_CHALLENGE : `${BEARER_CHALLENGE}, error="invalid_token"`;
}
