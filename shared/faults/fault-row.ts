/** How the server's certificate, which comes from none of our CAs, relates to `--ca-cert`. */
export type CaRelation =
  /** There is no `--ca-cert`. */
  | "none_given"
  /** The CA of the server is none of those in `--ca-cert`. */
  | "another"
  /** One of those has the name of its CA, and another key. */
  | "same_name"
  /** The certificate is its own CA. */
  | "self_signed";

/** What is known of a fault beside its code. */
export interface FaultFacts {
  /** The server's address, a proxy, an issuer or a file. */
  readonly by: string;
  /** The option or variable that names the proxy, where the fault is at a proxy. */
  readonly proxyFrom?: string | undefined;
  /** The fault is on the way to the script of `--pac`, and not to a server or proxy. */
  readonly isOfScript?: boolean;
  /** The issuer of a middlebox that opens TLS on the way. */
  readonly openedBy?: string | undefined;
  /** A TLS handshake was cut, or nobody answered it; absent: TLS itself says what is wrong. */
  readonly handshake?: "cut" | "silent";
  readonly relation?: CaRelation;
  /** The names in a certificate that is for another name. */
  readonly names?: string | undefined;
  /** The certificate is a client's. */
  readonly isClients?: boolean;
  /** Validity of a certificate or token that is outside of it, ms since 1970. */
  readonly validFrom?: number;
  readonly validTo?: number;
  /** By the server's clock, a credential that it refused is outside of its validity. */
  readonly outOfTime?: "ended" | "early";
  /** This machine's clock was compared with the server's, and agrees. */
  readonly isClockRight?: boolean;
}

/** One sentence that names what is at fault, and what to do next. */
export interface FaultText {
  readonly sentence: string;
  readonly next: string;
}

type Explain = (facts: FaultFacts) => FaultText;

/** One row of the table of faults. */
export interface FaultRow {
  /** Nothing changes before a person acts, and asking often does harm. Absent: the usual backoff. */
  readonly isSlow?: true;
  /** Value of `reason` in `culvert_agent_uplink_failures_total`, if not the code. */
  readonly label?: string;
  readonly explain: Explain;
  /** Replaces `explain` where the fault is at a proxy. */
  readonly viaProxy?: Explain;
  /** Replaces `explain` where a middlebox opens TLS. */
  readonly opened?: (facts: FaultFacts & { readonly openedBy: string }) => FaultText;
  /** The next step where the fault is on the way to the script of `--pac`. */
  readonly scriptNext?: string;
}

export function minuteOf(ms: number | undefined): string {
  return ms === undefined ? "an unknown day" : new Date(ms).toISOString().slice(0, 16).replace("T", " ");
}
