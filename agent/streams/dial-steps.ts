import type { Lookup, TargetDialOptions } from "../../shared/dial/dial-target.ts";
import type { TraceSpan } from "../../shared/tracing/tracing.ts";
import type { OpenTimes } from "../../shared/wire/stream-head.ts";

export type Permit = NonNullable<TargetDialOptions["permit"]>;

/** When the steps of a dial were over, for a server that asks and for the spans of the agent. */
export class DialSteps {
  readonly #begunAt = performance.now();
  /** A literal address needs no name server. */
  #resolvedAt = this.#begunAt;
  #permittedAt: number | undefined;

  lookup(lookup: Lookup): Lookup {
    return (host, done, timeoutMs) => {
      const onFound: typeof done = (error, addresses) => {
        this.#resolvedAt = performance.now();
        done(error, addresses);
      };
      lookup(host, onFound, timeoutMs);
    };
  }

  /** It is asked for each address, before any is dialled. */
  permit(permit: Permit): Permit {
    return (address, port) => {
      const refusal = permit(address, port);
      this.#permittedAt = performance.now();
      return refusal;
    };
  }

  times(now = performance.now()): OpenTimes {
    const permittedAt = this.#permittedAt ?? this.#resolvedAt;
    const dnsMs = this.#resolvedAt - this.#begunAt;
    return { dnsMs, policyMs: permittedAt - this.#resolvedAt, dialMs: now - permittedAt };
  }

  /** The steps that were begun, as parts of the agent's span. */
  addTo(span: TraceSpan, now: number): void {
    if (this.#permittedAt === undefined) span.part("resolve", this.#begunAt, now);
    else {
      span.part("resolve", this.#begunAt, this.#resolvedAt);
      span.part("policy", this.#resolvedAt, this.#permittedAt);
      span.part("dial", this.#permittedAt, now);
    }
  }
}
