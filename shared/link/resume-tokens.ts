import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/**
 * Welcomes in a row that may be lost or repeated. More are told apart no longer: the token that was used last stays good,
 * and of those it has brought the latest.
 */
const MAX_UNCONFIRMED = 64;

/**
 * What an agent must show to give its link a new carrier (design: "Link and resumption"). A resume issues a new token; the
 * one it used stays good until the agent is known to have the new one, since the welcome may be lost on its way. So do
 * those that were issued in between: a hello that arrives twice must not spoil the answer to the first. Kept as digests:
 * nothing that can be read out of this process resumes a link.
 */
export class ResumeTokens {
  /** The newest is the last. */
  #good: Buffer[] = [];

  /** The first token, or the one after `used`, which has just been accepted. */
  issue(used?: string): string {
    const token = randomBytes(32).toString("base64url");
    if (used === undefined) this.#good = [];
    else if (this.#good.length >= MAX_UNCONFIRMED) {
      const shown = digest(used);
      this.#good = [shown, ...this.#good.filter((good) => !good.equals(shown)).slice(2 - MAX_UNCONFIRMED)];
    }
    this.#good.push(digest(token));
    return token;
  }

  /** Takes the same time whichever it is. */
  accepts(token: string): boolean {
    const shown = digest(token);
    let accepted = false;
    for (const good of this.#good) accepted = timingSafeEqual(shown, good) || accepted;
    return accepted;
  }

  /** The agent has this token: none before it is good any more. */
  confirm(token: string): void {
    const shown = digest(token);
    this.#good = this.#good.slice(
      Math.max(
        0,
        this.#good.findIndex((good) => good.equals(shown)),
      ),
    );
  }
}

function digest(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
