import { inCluster, kubeconfig } from "../../shared/kubernetes/access.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { TokenTrust } from "../clusters/document.ts";
import { JwtVerifier } from "./jwt-verifier.ts";
import { TokenReviewVerifier } from "./token-review.ts";
import type { ApiServerState, TokenVerifier } from "./verifier.ts";

export type CreateVerifier = typeof createVerifier;

/**
 * The verifier for the tokens that a cluster accepts. Throws a sentence for the author of its document. `onApiServer`
 * is called when an API server that verifies tokens begins to answer or to fail.
 */
export function createVerifier(
  trust: TokenTrust,
  log: Logger,
  onApiServer: (state: ApiServerState) => void,
): TokenVerifier {
  if (trust.kind === "jwt") return new JwtVerifier(trust, log);
  const { kubeconfig: path, audience, agentNamespace, agentServiceAccount } = trust;
  const access = path === undefined ? inCluster() : kubeconfig(path);
  return new TokenReviewVerifier({ audience, agentNamespace, agentServiceAccount, access, onApiServer });
}
