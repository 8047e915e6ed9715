import { presentedToken } from "../../shared/net/bearer.ts";
import type { AgentRules } from "./identify.ts";

const BEARER = 'Bearer realm="culvert"';

/**
 * What an agent is asked for that could not prove who it is (RFC 9110 §15.5.2). RFC 6750 §3.1: whoever has brought a token
 * hears that it is none, whoever has brought nothing hears no fault. For certificates no scheme is registered
 * (RFC 9110 §11.1).
 */
export function challenge({ verifier }: Pick<AgentRules, "verifier">, authorization: string | undefined): string {
  if (verifier === undefined) return "ClientCertificate";
  return presentedToken(authorization) === undefined ? BEARER : `${BEARER}, error="invalid_token"`;
}
