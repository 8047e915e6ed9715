import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Hello } from "../../shared/link/control.ts";
import {
  type CarrierDialOptions,
  type Dialled,
  dialCarrier,
  dialOuter,
  type OuterDialled,
  probeServer,
} from "../../shared/link/dial.ts";
import { Intercepted } from "../../shared/link/intercepted.ts";
import { HANDSHAKE_VERSION } from "../../shared/wire/handshake.ts";
import type { AgentOptions } from "../options.ts";
import type { Credentials } from "../uplink/credentials.ts";
import { anyCa } from "../uplink/reach.ts";
import { chainOf } from "./certificates.ts";
import type { Passed } from "./steps.ts";
import { tlsFault } from "./tls-fault.ts";

export interface TunnelDial {
  readonly options: Omit<CarrierDialOptions, "open" | "watch">;
  readonly hello: Hello;
  readonly credentials: Credentials;
  readonly innerTls: AgentOptions["innerTls"];
  /** Bytes that a link keeps. */
  readonly replayBytes: number;
  /** A connection by the way out; another one each time. */
  open(): Promise<Socket>;
  /** How people call the server. */
  readonly at: string;
  /** Somebody has said what time it is, ms since 1970. */
  onTime(time: number, from: string): void;
}

/** A dial whose TLS stands, and what comes of it. */
export type Underway = {
  readonly answer: Promise<IncomingMessage>;
  /** Who opens TLS on the way. */
  readonly openedBy: string | undefined;
} & (
  | { readonly kind: "outside"; readonly done: Promise<Dialled> }
  | { readonly kind: "inside"; readonly done: Promise<OuterDialled> }
);

/** Where TLS ends, and the dial that an agent makes there: with all that it shows, or with nothing but inner TLS. */
export async function outerTls(dial: TunnelDial): Promise<Passed<Underway>> {
  let openedBy: string | undefined;
  try {
    openedBy = await opener(dial);
    const isInside = openedBy !== undefined || dial.innerTls === "always";
    return await secured(dial, openedBy, isInside ? inside : outside);
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, openedBy, dial);
  }
}

/** As the agent does it: where somebody may stand between, it looks before it shows anything. */
async function opener({ options, credentials, innerTls, open }: TunnelDial): Promise<string | undefined> {
  const { ca, outerCa } = credentials;
  if (innerTls === "never" || (innerTls === "auto" && outerCa === undefined)) return undefined;
  try {
    await probeServer({ ...options, open, tls: { ...options.tls, ca } });
    return undefined;
  } catch (error) {
    if (error instanceof Intercepted && outerCa !== undefined) return error.issuer;
    throw error;
  }
}

type Dial = (dial: TunnelDial, options: CarrierDialOptions) => Pick<Underway, "kind" | "done">;

const outside: Dial = ({ hello, credentials: { ca, cert, key, token } }, options) => ({
  kind: "outside",
  done: dialCarrier({
    ...options,
    tls: { ...options.tls, ca, cert, key },
    ...(token && { headers: { authorization: `Bearer ${token.text}` } }),
    hello: () => hello,
  }),
});

const inside: Dial = ({ credentials, innerTls }, options) => ({
  kind: "inside",
  done: dialOuter({
    ...options,
    tls: { ...options.tls, ca: innerTls === "always" ? anyCa(credentials) : [...(credentials.outerCa ?? [])] },
    hello: () => ({ type: "hello", version: HANDSHAKE_VERSION, inner: true }),
  }),
});

async function secured(dial: TunnelDial, openedBy: string | undefined, start: Dial): Promise<Passed<Underway>> {
  let onAnswer: (answer: IncomingMessage) => void = () => {};
  const answer = new Promise<IncomingMessage>((resolve) => {
    onAnswer = resolve;
  });
  const { value, socket } = await new Promise<{ value: Underway; socket: TLSSocket }>((resolve, reject) => {
    const onSecure = (socket: TLSSocket): void => resolve({ value, socket });
    const options = { ...dial.options, open: () => dial.open(), watch: { onSecure, onAnswer } };
    const value = { ...start(dial, options), answer, openedBy } as Underway;
    value.done.catch(reject); // later steps say what it is to them
  });
  const chain = chainOf(socket.getPeerX509Certificate());
  const [leaf] = chain;
  const words = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
  if (openedBy === undefined) return { value, detail: words, chain };
  return { value, detail: `opened by "${openedBy}", whom --outer-ca knows: ${words}`, chain, openedBy };
}
