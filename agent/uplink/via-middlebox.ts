import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello } from "../../shared/link/control.ts";
import { type InnerHello, type InnerWelcome, parseInnerReply, type Renewed } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialAgain, OUTER_HELLO } from "../../shared/link/dial.ts";
import type { InnerPipe } from "../../shared/link/inner-pipe.ts";
import { UntrustedLink } from "../../shared/link/inner-pipe.ts";
import { dialInner } from "../../shared/link/inner-tls.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import type { Credentials } from "./credentials.ts";
import {
  carrierOptions,
  connectionOptions,
  type DialContext,
  type DialTerms,
  linkOptions,
  reportToRoute,
  resumeTerms,
} from "./dial-context.ts";
import { provenBy } from "./resumption.ts";
import { dialMiddlebox, middleboxCa, outerTrust } from "./tls-terminator.ts";

/** The TLS connectDirectly may end in between: nothing is shown in it, and all in the inner TLS over the link. */
export async function connectViaMiddlebox(
  reach: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let shown = terms.credentials;
  const { link, carrier, pipe, key, answer } = await meet(reach, terms, middleboxCa(reach, shown));
  if (answer.type !== "welcome") {
    link.destroy();
    throw new Error("the server has not welcomed us inside the inner TLS");
  }
  const { graceMs } = answer;
  const keepaliveMs = (): number => Math.min(reach.path.keepaliveMs, answer.keepaliveMs);
  link.assignId(answer.link, graceMs);
  carrier.setKeepalive(keepaliveMs());
  return new Connection(link, answer, owner, {
    ...connectionOptions(reach, () => shown),
    pipe,
    prove: async (signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const met = await meet(reach, again, outerTrust(again.credentials), link.id);
      met.pipe.end();
      if (met.answer.type !== "renewed") throw new Error("the server has not taken the proof of who we are");
      shown = again.credentials;
    },
    redial: async (words, signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const to = carrierOptions(reach, again);
      const tls = { ...to.tls, ca: outerTrust(again.credentials) };
      const hello = (): OuterHello => ({ ...OUTER_HELLO, resume: key.prove(words()) });
      const dialled = dialAgain({ ...to, tls, hello, keepaliveMs: keepaliveMs() });
      return provenBy(key, link.id, await reportToRoute(reach, again, dialled));
    },
  });
}

/** Who may end the TLS connectDirectly. */
type OuterCa = CarrierDialOptions["tls"]["ca"];

/** What the server has answered inside, and on what. */
interface Met extends InnerAnswer {
  readonly link: UntrustedLink;
  readonly carrier: Carrier;
}

/** A carrier, inner TLS on it, and the first words. */
async function meet(reach: DialContext, terms: DialTerms, ca: OuterCa, renews?: string): Promise<Met> {
  const { server, hello } = reach;
  const { timeoutMs } = terms;
  const until = performance.now() + timeoutMs;
  const { carrier, remote } = await reportToRoute(reach, terms, dialMiddlebox(carrierOptions(reach, terms), ca));
  const link = new UntrustedLink(remote, carrier, linkOptions(reach));
  const inside = await handshakeInside(link, {
    ...terms,
    ...{ host: server.host, hello },
    timeoutMs: Math.max(1, until - performance.now()),
    ...(renews !== undefined && { renews }),
  });
  return { ...inside, link, carrier };
}

export interface InnerHelloOptions {
  /** The server's name. */
  readonly host: string;
  readonly hello: Omit<Hello, "resume">;
  readonly credentials: Credentials;
  /** A link that is there already, whose agent we only prove to be. */
  readonly renews?: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What the server has answered inside. */
export interface InnerAnswer {
  readonly pipe: InnerPipe;
  readonly key: LinkKey;
  readonly answer: InnerWelcome | Renewed;
}

/**
 * Inner TLS over a link whose carrier ends its TLS in between, and the first words in it (design: "Handshake"): here is
 * where certificate and token are shown. Rejects with `LinkRefused` or a sentence, and ends the link.
 */
export async function handshakeInside(link: Link, options: InnerHelloOptions): Promise<InnerAnswer> {
  const { host, credentials, timeoutMs, signal } = options;
  const { ca, cert, key } = credentials;
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(timeoutMs))]);
  const { pipe, key: linkKey } = await dialInner(link, { host, tls: { ca, cert, key }, timeoutMs, signal });
  return { pipe, key: linkKey, answer: await sendHello(pipe, options, until) };
}

/** The first words, once inner TLS stands. Rejects as `handshakeInside` does. */
export async function sendHello(
  pipe: InnerPipe,
  { hello, credentials: { token }, renews }: Pick<InnerHelloOptions, "hello" | "credentials" | "renews">,
  until: AbortSignal,
): Promise<InnerWelcome | Renewed> {
  const onLate = (): void => pipe.destroy(new Error("no welcome came inside the inner TLS"));
  until.addEventListener("abort", onLate, { once: true });
  if (until.aborted) onLate();
  const words: InnerHello = {
    ...hello,
    ...(token && { bearer: token.text }),
    ...(renews !== undefined && { renews }),
  };
  try {
    pipe.sendMessage(words);
    return parseInnerReply(await pipe.readMessage());
  } catch (error) {
    pipe.destroy(error as Error);
    throw error;
  } finally {
    until.removeEventListener("abort", onLate);
  }
}
