import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialAgain, dialOuter, OUTER_HELLO } from "../../shared/link/dial.ts";
import {
  type InnerHello,
  type InnerPipe,
  type InnerWelcome,
  parseInnerReply,
  type Renewed,
} from "../../shared/link/inner-pipe.ts";
import { dialInner, UntrustedLink } from "../../shared/link/inner-tls.ts";
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

/** Connects through a middlebox that ends the outer TLS: certificate and token are sent in the inner TLS only. */
export async function connectViaMiddlebox(
  context: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let used = terms.credentials;
  const { link, carrier, pipe, key, answer } = await startInnerTls(context, terms, middleboxCa(context, used));
  const welcome = requireWelcome(answer, link);
  const { graceMs } = welcome;
  const keepaliveMs = (): number => Math.min(context.path.keepaliveMs, welcome.keepaliveMs);
  link.assignId(welcome.link, graceMs);
  carrier.setKeepalive(keepaliveMs());
  return new Connection(link, welcome, owner, {
    ...connectionOptions(context, () => used),
    pipe,
    prove: async (signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const renewal = await startInnerTls(context, again, outerTrust(again.credentials), link.id);
      renewal.pipe.end();
      if (renewal.answer.type !== "renewed") throw new Error("the server did not renew the agent's credential");
      used = again.credentials;
    },
    redial: async (words, signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const hello = (): OuterHello => ({ ...OUTER_HELLO, resume: key.prove(words()) });
      const to = { ...carrierOptions(context, again), link: link.id, keepaliveMs: keepaliveMs() };
      const dialled = dialMiddlebox(to, outerTrust(again.credentials), (outer) => dialAgain({ ...outer, hello }));
      return provenBy(key, link.id, await reportToRoute(context, again, dialled));
    },
  });
}

/** Throws where the server answered a hello for a new link with something else, and ends the link. */
export function requireWelcome(answer: InnerWelcome | Renewed, link: Pick<Link, "destroy">): InnerWelcome {
  if (answer.type === "welcome") return answer;
  link.destroy();
  throw new Error("the server sent no welcome inside the inner TLS");
}

/** The inner TLS over a new link, with the server's answer. */
interface InnerTlsStart extends InnerHandshake {
  readonly link: UntrustedLink;
  readonly carrier: Carrier;
}

/** Dials a carrier, starts inner TLS on it and sends the hello. `renews`: the link whose credential is renewed. */
async function startInnerTls(
  context: DialContext,
  terms: DialTerms,
  ca: CarrierDialOptions["tls"]["ca"],
  renews?: string,
): Promise<InnerTlsStart> {
  const { server, hello } = context;
  const { timeoutMs } = terms;
  const until = performance.now() + timeoutMs;
  const { carrier, remote } = await reportToRoute(
    context,
    terms,
    dialMiddlebox({ ...carrierOptions(context, terms), link: renews }, ca, dialOuter),
  );
  const link = new UntrustedLink(remote, carrier, linkOptions(context));
  const handshake = await handshakeInside(link, {
    ...terms,
    ...{ host: server.host, hello },
    timeoutMs: Math.max(1, until - performance.now()),
    ...(renews !== undefined && { renews }),
  });
  return { ...handshake, link, carrier };
}

export interface InnerHelloOptions {
  /** The server's name. */
  readonly host: string;
  readonly hello: Omit<Hello, "resume">;
  readonly credentials: Credentials;
  /** An open link whose credential is renewed; absent: a new link. */
  readonly renews?: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** An inner TLS that is up, and the server's answer in it. */
export interface InnerHandshake {
  readonly pipe: InnerPipe;
  readonly key: LinkKey;
  readonly answer: InnerWelcome | Renewed;
}

/**
 * Starts inner TLS over a link and exchanges the first messages in it, where certificate and token are sent. Rejects
 * with
 * `LinkRefused` or a sentence, and ends the link.
 */
async function handshakeInside(link: Link, options: InnerHelloOptions): Promise<InnerHandshake> {
  const { host, credentials, timeoutMs, signal } = options;
  const { ca, cert, key } = credentials;
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(timeoutMs))]);
  const { pipe, key: linkKey } = await dialInner(link, { host, tls: { ca, cert, key }, timeoutMs, signal });
  return { pipe, key: linkKey, answer: await sendHello(pipe, options, until) };
}

/** Sends the hello and reads the answer, once inner TLS is up. Rejects as `handshakeInside` does. */
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
