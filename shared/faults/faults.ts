import type { FaultFacts, FaultRow, FaultText } from "./fault-row.ts";
import { NETWORK_FAULTS } from "./network-rows.ts";
import { TUNNEL_FAULTS } from "./tunnel-rows.ts";

/**
 * One row for each fault between an agent and its server, as `OUTCOMES` has one for each bad end of a CONNECT: what the
 * metric calls it, when the agent tries again, and what the doctor says of it.
 */
const FAULTS = { ...NETWORK_FAULTS, ...TUNNEL_FAULTS };

/** The word for a fault in logs, and in the doctor's JSON. */
export type FaultCode = keyof typeof FAULTS;

/** The row of a code, without the literal types of each cell. */
export function faultRow(code: FaultCode): FaultRow {
  return FAULTS[code];
}

/** Names what is at fault and what to do next. */
export function explainFault(code: FaultCode, facts: FaultFacts): FaultText {
  const { explain, viaProxy, opened, scriptNext } = faultRow(code);
  const { by, proxyFrom, openedBy } = facts;
  if (facts.isOfScript && scriptNext !== undefined) {
    const sentence = `The script of --pac cannot be had: ${by}.`;
    return { sentence, next: `${scriptNext} Or name the proxy by --proxy.` };
  }
  if (proxyFrom !== undefined && viaProxy !== undefined) return viaProxy(facts);
  if (openedBy !== undefined && opened !== undefined) return opened({ ...facts, openedBy });
  return explain(facts);
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
