import { randomBytes } from "node:crypto";
import { type Cancellation, type Deferred, deferred, inTime } from "../../shared/basics/promises.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { Check } from "../../shared/runtime/check.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { type PeerIdentity, subjectOf } from "../../shared/tls/identity.ts";
import { type AuditSink, UNREAD_MS } from "./audit-sink.ts";
import { FileSink } from "./file-sink.ts";
import { SocketSink } from "./socket-sink.ts";

/** The version of the lines (docs/audit.md): it changes when a field gets another meaning, or goes. */
const VERSION = 1;
/** Characters of a name in a certificate or token: a line stays below `PIPE_BUF`, so that a pipe takes it whole. */
const MAX_NAME = 256;

/**
 * The party that asks: the caller of a CONNECT, another server, or an agent. Without any of these nobody is
 * authenticated.
 */
export interface AuditedParty {
  readonly peer?: PeerIdentity | undefined;
  /** The subject of a token. */
  readonly subject?: string | undefined;
  /** It came over a unix socket, by whose permissions it is known. */
  readonly unixSocket?: boolean;
  /** Subject, issuer and serial number of a certificate that was not accepted. */
  readonly claimed?: string | undefined;
}

/** The facts of a decision. JSON leaves out those that are undefined. */
export interface AuditedFacts {
  /** A CONNECT of a caller; one that another server has passed on; a connection of an agent; an agent. */
  readonly kind: "connect" | "hop" | "destination" | "agent";
  readonly cluster: string | undefined;
  readonly by: AuditedParty;
  /** `address:port`. */
  readonly source?: string | undefined;
  /** The id in the log. */
  readonly connection?: string | undefined;
  readonly target?: string | undefined;
  readonly targetCluster?: string | undefined;
  /** `address:port` that was dialled. */
  readonly address?: string | undefined;
  readonly agent?: string | undefined;
  /** The other server that the CONNECT goes to, or has come from. */
  readonly peer?: string | undefined;
  readonly tunnel?: string | undefined;
}

/** The end of a connection, or of an agent's tunnel. */
export interface AuditedEnd {
  /** `ok`, or the code of its end. */
  readonly outcome: string;
  readonly reason?: string | undefined;
  readonly endedBy?: string | undefined;
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

/** A decision that was written, until its end. */
export interface AuditedEntry {
  readonly id: string;
  readonly facts: AuditedFacts;
  readonly startedAt: number;
  /** There was no room for the decision. */
  readonly isLost: boolean;
}

interface TrailSetup {
  readonly serverId: string;
  /** CONNECTs are refused while their decision cannot be written. */
  readonly required: boolean;
  readonly log: Pick<Logger, "warn">;
  /** Counts lines that are lost. */
  readonly lost: { add(): void };
}

/**
 * The audit trail: who has asked for what, what was decided, and how it has ended (docs/audit.md). Each decision is a
 * line, and the end of what was allowed another one. Nothing is left out; lines are lost only where the sink takes
 * none for long, and are counted.
 */
export class AuditTrail {
  readonly #setup: TrailSetup;
  readonly #sink: AuditSink;
  /** Random for each start of the process, since connections are counted from 1 again. */
  readonly #run = randomBytes(4).toString("hex");
  #entries = 0;
  /** Lines that were lost, and of which no line says so yet. */
  #lost = 0;
  #idle: Deferred<void> | undefined;
  #isClosed = false;

  /** `where`: a path, `-` for stdout, or `unix:PATH`. Throws the error of a file that cannot be opened. */
  constructor(where: string, setup: TrailSetup) {
    this.#setup = setup;
    const events = { onLost: this.#onLost, onIdle: this.#onIdle };
    const isUnix = where.startsWith(UNIX);
    this.#sink = isUnix ? new SocketSink(where.slice(UNIX.length), events) : new FileSink(where, events);
    process.on("SIGHUP", this.#reopen);
  }

  readonly #reopen = (): void => {
    const error = this.#sink.reopen();
    if (error === undefined) return;
    this.#setup.log.warn({ reason: error.message }, "the audit trail's file cannot be opened again: the old one stays");
  };

  /** Throws `unaudited` where decisions have to be written, and cannot. */
  requireWritable(): void {
    if (this.#setup.required && this.#sink.fault !== undefined) throw unaudited();
  }

  /** Writes that something is allowed. Its end is `ended`. */
  allowed(facts: AuditedFacts): AuditedEntry {
    const id = this.#nextId();
    const lost = this.#lost;
    this.#write({ ...this.#head("decision", id, facts), decision: "allowed", rule: "ok" });
    return { id, facts, startedAt: performance.now(), isLost: this.#lost > lost };
  }

  /**
   * Resolves when this decision is written; rejects with `unaudited`, or when it is cancelled. `undefined`: nothing has
   * to be waited for.
   */
  written({ isLost }: AuditedEntry, cancellation: Cancellation<Error>): Promise<void> | undefined {
    if (!this.#setup.required || (!isLost && !this.#sink.isWaiting)) return undefined;
    if (isLost || this.#sink.fault !== undefined) return Promise.reject(unaudited());
    this.#idle ??= deferred();
    return inTime(this.#idle.promise, cancellation, UNREAD_MS, unaudited);
  }

  /** Writes that something is refused. `rule`: the code of an outcome, or the word of a refused agent. */
  refused(facts: AuditedFacts, rule: string, reason: string | undefined): void {
    // The trail cannot be written. The room that is left in it is needed for the ends of open connections.
    if (rule === UNAUDITED) this.#onLost();
    else this.#write({ ...this.#head("decision", this.#nextId(), facts), decision: "refused", rule, ...why(reason) });
  }

  ended({ id, facts, startedAt }: AuditedEntry, { outcome, reason, endedBy, bytesUp, bytesDown }: AuditedEnd): void {
    const { kind, cluster, target, agent } = facts;
    const durationMs = Math.round(performance.now() - startedAt);
    const end = { cluster, target, agent, outcome, ...why(reason), endedBy, bytesUp, bytesDown, durationMs };
    this.#write({ ...this.#first("end"), id, kind, ...end });
  }

  #nextId(): string {
    return `${this.#run}-${(++this.#entries).toString(36)}`;
  }

  #first(event: "decision" | "end" | "gap") {
    return { v: VERSION, time: new Date().toISOString(), event, server: this.#setup.serverId };
  }

  #head(event: "decision", id: string, { kind, by, ...facts }: AuditedFacts) {
    return { ...this.#first(event), id, kind, ...facts, identity: identityOf(by) };
  }

  #write(line: object): void {
    if (this.#isClosed) this.#onLost();
    else this.#sink.write(`${JSON.stringify(line)}\n`);
  }

  readonly #onLost = (): void => {
    this.#setup.lost.add();
    if (this.#lost++ > 0 || this.#isClosed) return;
    this.#setup.log.warn({ reason: this.#sink.fault }, "lines of the audit trail are lost");
  };

  /** A reader of the trail alone can see where lines are missing. */
  readonly #onIdle = (): void => {
    this.#idle?.resolve();
    this.#idle = undefined;
    const lost = this.#lost;
    this.#lost = 0;
    if (lost > 0) this.#write({ ...this.#first("gap"), lost });
  };

  /** For readiness: callers go to another server while this one refuses them. */
  checks(): readonly Check[] {
    const { fault } = this.#sink;
    const lost = this.#lost > 0 ? `, lines of it lost: ${this.#lost}` : "";
    const detail = fault === undefined ? "" : `the audit trail: ${fault}${lost}`;
    return [
      { name: "audit", ok: fault === undefined || !this.#setup.required, hasFaults: fault !== undefined, detail },
    ];
  }

  /** Waits a moment for a slow reader, and not for a broken sink. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    process.off("SIGHUP", this.#reopen);
    if (this.#sink.isWaiting && this.#sink.fault === undefined) {
      this.#idle ??= deferred();
      const timer = setTimeout(this.#idle.resolve, UNREAD_MS);
      await this.#idle.promise;
      clearTimeout(timer);
    }
    this.#isClosed = true;
    this.#sink.close();
  }
}

const UNIX = "unix:";
const UNAUDITED = "unaudited";

function unaudited(): CulvertError {
  const sentence =
    "the audit trail of this server cannot be written, without which it connects nobody: its /readyz?verbose says why";
  return new CulvertError(UNAUDITED, sentence);
}

function why(reason: string | undefined): { readonly reason?: string } {
  return reason === undefined ? {} : { reason: printable(reason) };
}

function identityOf({ peer, subject, unixSocket, claimed }: AuditedParty) {
  if (peer !== undefined) {
    const { serial, fingerprint256: fingerprint } = peer;
    return { by: "certificate", subject: subjectOf(peer).slice(0, MAX_NAME), serial, fingerprint };
  }
  if (subject !== undefined) return { by: "token", subject: subject.slice(0, MAX_NAME) };
  return unixSocket === true ? { by: "unix" } : { by: "nothing", claimed };
}
