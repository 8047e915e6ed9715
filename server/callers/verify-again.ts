import { setTimeout as sleep } from "node:timers/promises";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { type PeerIdentity, shortSubject } from "../../shared/tls/identity.ts";
import type { AdmittedCredential, OpenConnect } from "../cluster-runtime/open-connects.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { identityRefusal, TOKENS_NOT_ACCEPTED } from "../listeners/authenticate-peer.ts";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";

/** A CONNECT that is not permitted any more ends within 5 s, of which the files and the resets take a part. */
const VERIFIED_WITHIN_MS = 4_000;
/** Tokens of one cluster that are verified at once, each by a request to a Kubernetes API. */
const TOKENS_AT_ONCE = 32;

/** A verifier that cannot answer now is asked again after this time at the earliest, ms. */
const MIN_RETRY_MS = 500;

/**
 * Verifies the credentials of a cluster's open CONNECTs again, and refuses or resets those that are not permitted any
 * more (decision 0022). Each credential is verified once, however many CONNECTs it has, and all clusters take turns.
 */
export class CallerReverification {
  readonly #turns: TurnQueue;

  constructor(turns: TurnQueue) {
    this.#turns = turns;
  }

  /** Resolves when all are verified. */
  async verify(host: ClusterVirtualHost): Promise<void> {
    const tokens: AdmittedCredential[] = [];
    for (const admitted of host.open.all()) {
      for (const connect of admitted.connects)
        this.#turns.run(() => refuseIf(connect, host.sourceObjection(connect.address)));
      const { proof } = admitted;
      if (proof?.kind === "token") tokens.push(admitted);
      else if (proof !== undefined) this.#turns.run(() => this.#refuse(admitted, certificateFault(proof.peer, host)));
    }
    if (tokens.length === 0) return;
    const signal = AbortSignal.timeout(VERIFIED_WITHIN_MS);
    const next = tokens[Symbol.iterator]();
    const worker = async (): Promise<void> => {
      for (const admitted of next) await this.#verifyToken(admitted, host, signal);
    };
    await Promise.all(Array.from({ length: TOKENS_AT_ONCE }, worker));
  }

  #refuse({ connects }: AdmittedCredential, refusal: CulvertError | undefined): void {
    if (refusal === undefined) return;
    for (const connect of connects) this.#turns.run(() => connect.refuse(refusal));
  }

  async #verifyToken(admitted: AdmittedCredential, host: ClusterVirtualHost, signal: AbortSignal): Promise<void> {
    const { proof } = admitted;
    const { verifier } = host;
    // Under unchanged rules the token needs no verification: that it may have expired ends no open connection.
    if (proof?.kind !== "token" || proof.verifier === verifier || admitted.connects.size === 0) return;
    const verdict = await verdictOf(proof.text, verifier, signal);
    // If the rules have changed once more, another run verifies by them; or a new CONNECT has just proved the token.
    if (host.verifier !== verifier || admitted.proof !== proof) return;
    if ("ok" in verdict && verifier !== undefined) admitted.proof = { ...proof, verifier };
    else if ("refused" in verdict) this.#refuse(admitted, new CulvertError("unauthenticated", verdict.refused));
  }
}

function refuseIf(connect: OpenConnect, refusal: CulvertError | undefined): void {
  if (refusal !== undefined) connect.refuse(refusal);
}

/** Why a certificate is not permitted any more; its dates do not count. */
function certificateFault(peer: PeerIdentity, host: ClusterVirtualHost): CulvertError | undefined {
  const status = host.trust.status(peer.chain);
  if (status === "valid") return identityRefusal(peer, "caller", host);
  const why = status === "revoked" ? "is revoked" : "is not signed by a CA that is still accepted here";
  const sentence = `the client certificate ${shortSubject(peer)} ${why}`;
  return new CulvertError("unauthenticated", sentence);
}

/** Asks until there is an answer. A token that cannot be verified in time is refused. */
async function verdictOf(
  token: string,
  verifier: TokenVerifier | undefined,
  signal: AbortSignal,
): Promise<VerificationResult> {
  if (verifier === undefined) return { refused: TOKENS_NOT_ACCEPTED };
  for (;;) {
    try {
      const verdict = await verifier.verify(token, { signal });
      if (!("unavailable" in verdict)) return verdict;
      await sleep(Math.max(MIN_RETRY_MS, verdict.retryAfterMs), undefined, { signal });
    } catch {
      return {
        refused: "the rules for tokens have changed, and nobody could verify this one by the new rules in time",
      };
    }
  }
}
