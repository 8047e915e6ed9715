import { FAULTS, type FaultRow } from "./fault-rows.ts";

/** The word for a fault in logs, and in the doctor's JSON. */
export type FaultCode = keyof typeof FAULTS;

/** How the server's certificate, which comes from none of our CAs, relates to `--ca-cert`. */
export type CaRelation =
  /** There is no `--ca-cert`. */
  | "none_given"
  /** The CA of the server is none of those in `--ca-cert`. */
  | "another"
  /** A CA of ours has the name of the certificate's issuer, and another key. */
  | "same_name"
  /** The certificate is its own CA. */
  | "self_signed";

/** The facts of a fault beside its code. */
export interface FaultFacts {
  /** The server's address, a proxy, an issuer or a file. */
  readonly by: string;
  /** The option or variable that names it, where it is a proxy or the script of `--pac`. */
  readonly proxyFrom?: string | undefined;
  readonly relation?: CaRelation;
  /** The names in a certificate that is for another name. */
  readonly names?: string | undefined;
  /** The certificate that is out of its time is the CA's own. */
  readonly isOfCa?: boolean;
  /** Validity of a certificate or token that is outside of it, ms since 1970. */
  readonly validFrom?: number;
  readonly validTo?: number;
}

/** One sentence that names what is at fault, and what to do next. */
export interface FaultText {
  readonly sentence: string;
  readonly next: string;
}

/** The row of a code, without the literal types of each cell. */
export function faultRow(code: FaultCode): FaultRow {
  return FAULTS[code];
}

/** Names what is at fault and what to do next. */
export function explainFault(code: FaultCode, facts: FaultFacts): FaultText {
  const { says, next } = faultRow(code);
  const { by, proxyFrom = "--server", names = "no name", validFrom, validTo } = facts;
  const times = { validFrom: minute(validFrom), validTo: minute(validTo) };
  const words: Readonly<Record<string, string>> = { by, names, option: proxyFrom, ...times };
  const fill = (text: string) => text.replaceAll(/\{(\w+)\}/g, (_, fact: string) => words[fact] ?? "");
  return { sentence: fill(says), next: fill(next) };
}

function minute(ms: number | undefined): string {
  return ms === undefined ? "an unknown day" : new Date(ms).toISOString().slice(0, 16).replace("T", " ");
}

interface DialFaultOptions extends ErrorOptions {
  readonly facts: FaultFacts;
  /** When the peer asked to come back (RFC 9110 §10.2.3), ms. */
  readonly retryAfterMs?: number | undefined;
}

/** A dial that failed at a known fault. The message is for the log: it has the details of this one. */
export class DialFault extends Error {
  override readonly name: string = "DialFault";
  readonly fault: FaultCode;
  readonly facts: FaultFacts;
  readonly retryAfterMs: number | undefined;
  /** The code of OpenSSL or Node, where one of their errors is the cause. */
  readonly code: string | undefined;

  constructor(fault: FaultCode, message: string, { facts, retryAfterMs, ...options }: DialFaultOptions) {
    super(message, options);
    this.fault = fault;
    this.facts = facts;
    this.retryAfterMs = retryAfterMs;
    this.code = (options.cause as NodeJS.ErrnoException | undefined)?.code;
  }
}

/** The server's certificate comes from none of our CAs: it may be a middlebox's, and another one may be accepted. */
export function isUnknownIssuer(error: unknown): error is DialFault {
  return error instanceof DialFault && (error.fault === "unknown_ca" || error.fault === "intercepted");
}
