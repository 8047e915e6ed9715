import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { type Deferred, deferred } from "../../shared/basics/promises.ts";
import { revealsSecret } from "../../shared/basics/text.ts";
import { isUnknownIssuer } from "../../shared/faults/faults.ts";
import { probeServer } from "../../shared/link/dial.ts";
import { printable } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { carrierOptions, type OpenedLink, openDirectly, openViaMiddlebox } from "../uplink/open-link.ts";
import { dialTerminators } from "../uplink/tls-terminator.ts";
import { chainOf } from "./certificates.ts";
import type { ChainLink, Passed, StepFailed, StepLog } from "./report.ts";
import { dateOf, findingOf, innerTlsFault, stepFailed, type TunnelDial, tlsFault } from "./tls-fault.ts";

/** Dials as an agent does, and adds a step for TLS, upgrade, inner TLS and admission. */
export async function dialTunnel(dial: TunnelDial, log: StepLog): Promise<OpenedLink> {
  const watched = new WatchedDial(dial);
  await log.run("tls", () => tlsStep(watched));
  await log.run("upgrade", () => upgradeStep(watched));
  const { innerTls } = dial.context.options;
  if (watched.isInside) await log.run("inner tls", () => innerTlsStep(watched));
  else log.skip("inner tls", innerTls === "never" ? "--inner-tls is never" : "nobody opens TLS");
  return await log.run("admission", () => admissionStep(watched));
}

/** An agent's dial, to the terminator that an agent would use, with its steps. */
class WatchedDial {
  readonly dial: TunnelDial;
  readonly done: Promise<OpenedLink>;
  readonly secure = deferred<TLSSocket>();
  readonly answer = deferred<IncomingMessage>();
  readonly innerSecure = deferred<TLSSocket>();
  /** The issuer of a middlebox that opens TLS; absent: the server itself ends it. */
  openedBy: string | undefined;
  /** Agent and server use inner TLS. */
  isInside = false;

  constructor(dial: TunnelDial) {
    this.dial = dial;
    this.done = this.#open();
    this.done.catch(() => {}); // the steps explain it
  }

  /** Rejects with what ended the dial before this step. */
  reached<T>(step: Deferred<T>): Promise<T> {
    return Promise.race([step.promise, this.done.then(tooSoon)]);
  }

  async #open(): Promise<OpenedLink> {
    const { context } = this.dial;
    const { secure, answer, innerSecure } = this;
    const watch = { onSecure: secure.resolve, onAnswer: answer.resolve, onInnerSecure: innerSecure.resolve };
    const terms = { ...this.dial.terms, watch };
    if (context.options.innerTls === "always") this.openedBy = await middleboxIssuer(this.dial);
    return await dialTerminators(
      context,
      terms.credentials,
      (terminator) => {
        this.isInside = terminator === "middlebox";
        return this.isInside ? openViaMiddlebox(context, terms) : openDirectly(context, terms);
      },
      (_terminator, { facts }) => {
        this.openedBy = facts.by;
      },
    );
  }
}

/** A dial cannot end before its steps. */
function tooSoon(): never {
  throw new Error("a step was skipped");
}

/** With --inner-tls=always an agent does not ask which peer ends TLS, but the report should say it. */
async function middleboxIssuer({ context, terms }: TunnelDial): Promise<string | undefined> {
  const options = carrierOptions(context, terms);
  try {
    await probeServer({ ...options, tls: { ...options.tls, ca: terms.credentials.ca } });
    return undefined;
  } catch (error) {
    if (isUnknownIssuer(error)) return error.facts.by;
    throw error;
  }
}

async function tlsStep(watched: WatchedDial): Promise<Passed<undefined>> {
  try {
    const { chain, detail } = shownIn(await watched.reached(watched.secure));
    const { openedBy } = watched;
    if (openedBy === undefined) return { value: undefined, detail, chain };
    return { value: undefined, detail: `opened by "${openedBy}": ${detail}`, chain, openedBy };
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, watched.openedBy, watched.dial);
  }
}

/** The version of a TLS connection, and the certificates of its peer. */
function shownIn(socket: TLSSocket): { readonly chain: readonly ChainLink[]; readonly detail: string } {
  const chain = chainOf(socket.getPeerX509Certificate());
  const [leaf] = chain;
  const detail = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
  return { chain, detail };
}

async function upgradeStep(watched: WatchedDial): Promise<Passed<undefined>> {
  const { dial, done } = watched;
  try {
    const { statusCode, headers } = await watched.reached(watched.answer);
    const time = dateOf(headers);
    if (time !== undefined) dial.onTime(time);
    if (statusCode !== 101) await done; // rejects with what the answer says
    const names = middleboxNames(headers, dial.terms.credentials.token?.text);
    return { value: undefined, detail: `${statusCode} Switching Protocols${names}` };
  } catch (error) {
    throw upgradeFault(error as Error, watched);
  }
}

function upgradeFault(error: Error, { isInside, dial }: WatchedDial): StepFailed {
  const status = error instanceof LinkRefused ? error.status : undefined;
  // Outside of inner TLS the agent sends no credential, and a server without inner TLS misses it.
  if (status === 401 && isInside) return stepFailed({ culprit: "inner_tls_off", by: dial.at }, error);
  if (status === 404) return stepFailed({ culprit: "wrong_path", by: dial.context.server.path }, error);
  return stepFailed(findingOf(error, dial, "no_answer"), error);
}

/** Agent and server prove themselves to each other in inner TLS over the link. */
async function innerTlsStep(watched: WatchedDial): Promise<Passed<undefined>> {
  try {
    return { value: undefined, ...shownIn(await watched.reached(watched.innerSecure)) };
  } catch (error) {
    throw innerTlsFault(error as Error, watched.dial);
  }
}

/** The server's answer to the hello. */
async function admissionStep({ done, dial }: WatchedDial): Promise<Passed<OpenedLink>> {
  try {
    const value = await done;
    const { serverId, graceMs } = value.welcome;
    const resumable = graceMs === 0 ? "" : `, which keeps it for ${graceMs / 1_000} s when a connection is lost`;
    const server = printable(serverId, 100);
    return { value, detail: `"${dial.context.hello.agentId}" is welcome at server "${server}"${resumable}` };
  } catch (error) {
    throw stepFailed(findingOf(error as Error, dial, "no_answer"), error as Error);
  }
}

/** Maximum length of each name: a middlebox may write more than a line of a report holds. */
const MAX_NAME = 60;

/**
 * Middleboxes on the way put their names into answers; a culvert server writes neither `Server` nor `Via`. Pure.
 * `secret`: what was sent in confidence, and may come back.
 */
export function middleboxNames(headers: IncomingHttpHeaders, secret = ""): string {
  const names = ["server", "via"].map((field) => {
    const text = String(headers[field] ?? "");
    const name = revealsSecret(text, secret) ? "(not shown: it repeats our token)" : printable(text, MAX_NAME);
    return name === "" ? "" : `, ${field} "${name}"`;
  });
  return names.join("");
}
