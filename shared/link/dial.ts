import type { IncomingMessage } from "node:http";
import type net from "node:net";
import type tls from "node:tls";
import { HANDSHAKE_VERSION } from "../wire/handshake.ts";
import type { Carrier } from "./carrier.ts";
import type { Hello, OuterHello, ResumeAnswer, Welcome } from "./control.ts";
import { DialAttempt, type ExpectedAnswer, type Greeted } from "./dial-attempt.ts";
import type { PassedProxy } from "./dial-fault.ts";

/** How to reach a server. */
export interface CarrierDialOptions {
  /** The server's name, for SNI, verification and the Host header. */
  readonly host: string;
  readonly port: number;
  /** The address to connect to, if it is not that of `host`. */
  readonly address?: { readonly host: string; readonly port: number } | undefined;
  /** Opens the connection below TLS, for example through a proxy. It rejects soon after an abort. Absent: TCP. */
  readonly open?: ((signal: AbortSignal) => Promise<Passage>) | undefined;
  readonly path: string;
  /** `checkServerIdentity`: in place of the comparison of the name with the certificate. */
  readonly tls: Pick<tls.ConnectionOptions, "ca" | "cert" | "key" | "minVersion" | "ciphers" | "checkServerIdentity">;
  /** The configured CAs, for the message about a certificate that none of them has issued. */
  readonly trust?: DialTrust;
  readonly headers?: Readonly<Record<string, string>>;
  /** The open link that this connection is for: another server than its own can carry the connection there. */
  readonly link?: string | undefined;
  readonly keepaliveMs: number;
  /** Time for all steps together, ms. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly watch?: DialWatcher;
}

export interface DialTrust {
  /** Content of `--ca-cert`. */
  readonly ca?: string | undefined;
  /** Content of `--outer-ca`; absent: no middlebox is expected to open TLS on the path. */
  readonly outerCa?: readonly string[] | undefined;
}

/** A connection below TLS. */
export interface Passage {
  readonly socket: net.Socket;
  /** The proxy that it goes through, if any. */
  readonly proxy?: PassedProxy | undefined;
}

/** Events of a dial. */
export interface DialWatcher {
  /** The TLS handshake is done, and the server's certificate is valid. */
  onSecure?(socket: tls.TLSSocket): void;
  /** The upgrade was answered, whatever the answer is. */
  onAnswer?(answer: IncomingMessage): void;
  /** A ping on the new carrier was answered after this time, ms. */
  onEcho?(ms: number): void;
}

export interface DialOptions extends CarrierDialOptions {
  /** Called when the hello is sent, because a resume names what has been received by then. */
  readonly hello: () => Hello | OuterHello;
}

/** A carrier on which the agent has sent its hello. */
export interface DialledOuter {
  readonly carrier: Carrier;
  /** The address that was reached. */
  readonly remote: string;
}

/** A carrier that the server has welcomed. */
export interface Dialled extends DialledOuter {
  readonly welcome: Welcome;
}

/** A carrier on which a resume was answered. `LinkKey` tells whether it was the server. */
export interface DialledAgain extends DialledOuter {
  readonly resumed: ResumeAnswer;
}

/**
 * The agent's side of the handshake: TCP → TLS → upgrade → hello → welcome.
 *
 * Rejects with `LinkRefused` when the server refused, with a `DialFault` when a middlebox answered for it, else with an
 * error of the network whose message names the step.
 */
export async function dialCarrier(options: DialOptions): Promise<Dialled> {
  const { answer, ...reached } = await dial(options, { hello: options.hello, expects: "welcome" });
  return { ...reached, welcome: answer as Welcome };
}

/** Dials another carrier for a link. Rejects as `dialCarrier` does. */
export async function dialAgain(options: DialOptions): Promise<DialledAgain> {
  const { answer, ...reached } = await dial(options, { hello: options.hello, expects: "resumed" });
  return { ...reached, resumed: answer as ResumeAnswer };
}

/** Dials a carrier for inner TLS: no answer is expected outside of it. Rejects as `dialCarrier` does. */
export async function dialOuter(options: CarrierDialOptions): Promise<DialledOuter> {
  const { carrier, remote } = await dial(options, { hello: () => OUTER_HELLO });
  return { carrier, remote };
}

/** The hello that asks for inner TLS and says nothing else. */
export const OUTER_HELLO = { type: "hello", version: HANDSHAKE_VERSION, inner: true } as const satisfies OuterHello;

/** Verifies that the server is there, with a certificate of the `ca` of these options. Sends nothing but its name. */
export async function probeServer(options: CarrierDialOptions): Promise<void> {
  const attempt = new DialAttempt(options);
  try {
    await attempt.secure(await attempt.open());
  } catch (error) {
    throw attempt.explain(error as Error);
  } finally {
    attempt.abandon();
    attempt.stopWaiting();
  }
}

async function dial(
  options: CarrierDialOptions,
  { hello, expects }: { readonly hello: DialOptions["hello"]; readonly expects?: ExpectedAnswer },
): Promise<Greeted> {
  const attempt = new DialAttempt(options);
  try {
    const socket = await attempt.secure(await attempt.open());
    return await attempt.upgrade(socket, hello, expects);
  } catch (error) {
    attempt.abandon();
    throw attempt.explain(error as Error);
  } finally {
    attempt.stopWaiting();
  }
}
