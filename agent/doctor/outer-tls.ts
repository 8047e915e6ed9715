import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import type { Hello } from "../../shared/link/control.ts";
import {
  type CarrierDialOptions,
  type Dialled,
  type DialledOuter,
  dialCarrier,
  type Passage,
  probeServer,
} from "../../shared/link/dial.ts";
import { UnknownIssuer } from "../../shared/link/unknown-issuer.ts";
import type { Credentials } from "../uplink/credentials.ts";
import { boxCa, dialBox, dialEnds, dialServer, type OuterRule } from "../uplink/outer-end.ts";
import { chainOf } from "./certificates.ts";
import type { Passed } from "./steps.ts";
import { tlsFault } from "./tls-fault.ts";

export interface TunnelDial {
  readonly options: Omit<CarrierDialOptions, "open" | "watch">;
  readonly hello: Hello;
  readonly credentials: Credentials;
  readonly rule: OuterRule;
  /** Bytes that a link keeps. */
  readonly replayBytes: number;
  /** A connection by the way out; another one each time. */
  open(): Promise<Passage>;
  /** How people call the server. */
  readonly at: string;
  /** Somebody has said what time it is, ms since 1970. */
  onTime(time: number, from: string): void;
}

type Started =
  | { readonly kind: "outside"; readonly done: Promise<Dialled> }
  | { readonly kind: "inside"; readonly done: Promise<DialledOuter> };

/** A dial whose TLS stands, and what comes of it. */
export type Underway = Started & {
  readonly answer: Promise<IncomingMessage>;
  /** Who opens TLS on the way. */
  readonly openedBy: string | undefined;
};

/** Where TLS ends, and the dial that an agent makes there. */
export async function outerTls(dial: TunnelDial): Promise<Passed<Underway>> {
  const { rule, credentials } = dial;
  let openedBy: string | undefined;
  try {
    if (rule.innerTls === "always") openedBy = await opener(dial);
    return await dialEnds(
      rule,
      credentials,
      (end) => secured(dial, openedBy, end === "server" ? outside : inside),
      (_end, { issuer }) => {
        openedBy = issuer;
      },
    );
  } catch (error) {
    throw await tlsFault(error as NodeJS.ErrnoException, openedBy, dial);
  }
}

/** Where everybody gets inner TLS an agent does not ask who stands there; a report should say it. */
async function opener({ options, credentials: { ca }, open }: TunnelDial): Promise<string | undefined> {
  try {
    await probeServer({ ...options, open, tls: { ...options.tls, ca } });
    return undefined;
  } catch (error) {
    if (error instanceof UnknownIssuer) return error.issuer;
    throw error;
  }
}

type Dial = (dial: TunnelDial, to: CarrierDialOptions) => Started;

const outside: Dial = ({ rule, credentials, hello }, to) => ({
  kind: "outside",
  done: dialServer(to, rule, credentials, (ready) => dialCarrier({ ...ready, hello: () => hello })),
});

const inside: Dial = ({ rule, credentials }, to) => ({
  kind: "inside",
  done: dialBox(to, boxCa(rule, credentials)),
});

async function secured(dial: TunnelDial, openedBy: string | undefined, start: Dial): Promise<Passed<Underway>> {
  let onAnswer: (answer: IncomingMessage) => void = () => {};
  const answer = new Promise<IncomingMessage>((resolve) => {
    onAnswer = resolve;
  });
  const { started, socket } = await new Promise<{ started: Started; socket: TLSSocket }>((resolve, reject) => {
    const onSecure = (socket: TLSSocket): void => resolve({ started, socket });
    const started = start(dial, { ...dial.options, open: () => dial.open(), watch: { onSecure, onAnswer } });
    started.done.catch(reject); // later steps say what it is to them
  });
  const chain = chainOf(socket.getPeerX509Certificate());
  const [leaf] = chain;
  const value: Underway = { ...started, answer, openedBy };
  const words = `${socket.getProtocol()}, ${leaf?.subject} signed by ${leaf?.issuer}, valid until ${leaf?.validTo}`;
  if (openedBy === undefined) return { value, detail: words, chain };
  return { value, detail: `opened by "${openedBy}", whom --outer-ca knows: ${words}`, chain, openedBy };
}
