import { setTimeout as sleep } from "node:timers/promises";
import type { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { type PeerIdentity, shortSubject } from "../../shared/tls/identity.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";
import type { Admitted, OpenConnect } from "../tunnels/open-connects.ts";
import { notPermitted } from "./authenticate.ts";

/** A CONNECT that would not be let in now is over within 5 s: time for files to settle and for the resets is taken off. */
const VERIFIED_WITHIN_MS = 4_000;
/** Tokens of one cluster that are verified again at once: a Kubernetes API is asked about each of them. */
const TOKENS_AT_ONCE = 32;

/** Whatever the one we ask says about when to come back, ms. */
const MIN_RETRY_MS = 500;

/**
 * Verifies again by what the open CONNECTs of a cluster were admitted, and refuses or resets those that would not be let in
 * now (decision 0022). Each credential is verified once, whatever number of CONNECTs it has, and all clusters take turns.
 */
export class CallersAgain {
  readonly #turns: TurnQueue;

  constructor(turns: TurnQueue) {
    this.#turns = turns;
  }

  /** Resolves when all are verified. */
  async verify(door: ClusterVirtualHost): Promise<void> {
    const tokens: Admitted[] = [];
    for (const admitted of door.open.all()) {
      for (const connect of admitted.connects)
        this.#turns.run(() => refuseIf(connect, door.sourceObjection(connect.address)));
      const { proof } = admitted;
      if (proof?.kind === "token") tokens.push(admitted);
      else if (proof !== undefined) this.#turns.run(() => this.#refuse(admitted, certificateFault(proof.peer, door)));
    }
    if (tokens.length === 0) return;
    const signal = AbortSignal.timeout(VERIFIED_WITHIN_MS);
    const next = tokens[Symbol.iterator]();
    const worker = async (): Promise<void> => {
      for (const admitted of next) await this.#verifyToken(admitted, door, signal);
    };
    await Promise.all(Array.from({ length: TOKENS_AT_ONCE }, worker));
  }

  #refuse({ connects }: Admitted, refusal: CulvertError | undefined): void {
    if (refusal === undefined) return;
    for (const connect of connects) this.#turns.run(() => connect.refuse(refusal));
  }

  async #verifyToken(admitted: Admitted, door: ClusterVirtualHost, signal: AbortSignal): Promise<void> {
    const { proof } = admitted;
    const { verifier } = door;
    // By the same rules it is as good as it was: that its time may be over by now ends no open connection.
    if (proof?.kind !== "token" || proof.verifier === verifier || admitted.connects.size === 0) return;
    const verdict = await verdictOf(proof.text, verifier, signal);
    // The rules are others once more, by which somebody else verifies; or the same token has just been let in by these.
    if (door.verifier !== verifier || admitted.proof !== proof) return;
    if ("ok" in verdict && verifier !== undefined) admitted.proof = { ...proof, verifier };
    else if ("refused" in verdict) this.#refuse(admitted, new CulvertError("unauthenticated", verdict.refused));
  }
}

function refuseIf(connect: OpenConnect, refusal: CulvertError | undefined): void {
  if (refusal !== undefined) connect.refuse(refusal);
}

/** Why a caller that was let in by this certificate would not be let in now; its dates do not count. */
function certificateFault(peer: PeerIdentity, door: ClusterVirtualHost): CulvertError | undefined {
  const status = door.trust.status(peer.chain);
  if (status === "valid") return notPermitted(door, peer);
  const why = status === "revoked" ? "is revoked" : "is not signed by a CA that is still accepted here";
  const sentence = `the client certificate ${shortSubject(peer)} ${why}`;
  return new CulvertError("unauthenticated", sentence);
}

/** Never "unavailable": for whom nobody speaks within the time, the new rules do not speak. */
async function verdictOf(
  token: string,
  verifier: TokenVerifier | undefined,
  signal: AbortSignal,
): Promise<VerificationResult> {
  if (verifier === undefined) return { refused: "tokens are not taken here any more" };
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
