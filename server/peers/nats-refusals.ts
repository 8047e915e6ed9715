import { printable } from "../../shared/outcomes.ts";

/** What NATS says of a subject for which this server has no permission. */
export interface Violation {
  readonly operation: "publish" | "subscription";
  readonly subject: string;
}

/** What the permission is for, and what has to be allowed. */
const ALLOW = {
  "publish question": "allow culvert.v1.>",
  "publish answer": "allow answers (allow_responses)",
  "subscription question": "allow culvert.v1.>",
  "subscription answer": "allow _INBOX.>",
} as const;

type RefusedKind = keyof typeof ALLOW;

/** Without these no other server can be asked. */
const FOR_ASKING: readonly RefusedKind[] = ["publish question", "subscription answer"];

/** What NATS refuses on the present connection: the last subject of each kind. */
export class NatsRefusals {
  readonly #subjects = new Map<RefusedKind, string>();

  add({ operation, subject }: Violation): void {
    this.#subjects.set(
      `${operation} ${subject.startsWith("_INBOX.") ? "answer" : "question"}`,
      printable(subject, 100),
    );
  }

  /** A question has come through, and its answer. */
  asked(): void {
    for (const kind of FOR_ASKING) this.#subjects.delete(kind);
  }

  clear(): void {
    this.#subjects.clear();
  }

  get hindersAsking(): boolean {
    return FOR_ASKING.some((kind) => this.#subjects.has(kind));
  }

  /** For operators. */
  sentences(): string[] {
    return [...this.#subjects].map(([kind, subject]) => {
      const verb = kind.startsWith("publish") ? "publish" : "subscribe";
      return `NATS refuses to let this server ${verb} ${subject}: ${ALLOW[kind]}`;
    });
  }
}
