import type { Logger } from "../../shared/runtime/logger.ts";
import { JwtVerifier } from "./jwt.ts";
import { inCluster, kubeconfig } from "./kube-access.ts";
import type { Reach } from "./review-reach.ts";
import { TokenReviewVerifier } from "./token-review.ts";
import type { TokenVerifier } from "./verifier.ts";

/** How an operator says whose tokens count; paths are absolute. */
export type TokenSettings =
  | {
      readonly kind: "tokenReview";
      /** Absent: this process runs in a pod of the cluster whose tokens they are. */
      readonly kubeconfig?: string | undefined;
      readonly audience: string;
      readonly agentNamespace?: string | undefined;
      readonly agentServiceAccount?: string | undefined;
    }
  | {
      readonly kind: "jwt";
      readonly issuer: string;
      readonly audience: string;
      readonly algorithms?: readonly string[] | undefined;
      readonly jwks: { readonly file: string } | { readonly url: string; readonly caFile?: string };
      readonly subjects: readonly string[];
    };

/** Throws a sentence for whoever wrote the settings. `onReach`: an API server that is asked answers now, or fails. */
export function verifierOf(settings: TokenSettings, log: Logger, onReach: (reach: Reach) => void): TokenVerifier {
  if (settings.kind === "tokenReview") {
    const { kubeconfig: path, audience, agentNamespace, agentServiceAccount } = settings;
    return new TokenReviewVerifier({
      audiences: [audience],
      agentNamespaces: agentNamespace === undefined ? [] : [agentNamespace],
      agentServiceAccounts: agentServiceAccount === undefined ? [] : [agentServiceAccount],
      access: path === undefined ? inCluster() : kubeconfig(path),
      onReach,
    });
  }
  const { issuer, audience, algorithms, jwks, subjects } = settings;
  const keys = "file" in jwks ? jwks : { ...jwks, url: new URL(jwks.url) };
  const audiences = [audience];
  return new JwtVerifier({ issuer, audiences, keys, subjects, ...(algorithms && { algorithms }) }, log);
}
