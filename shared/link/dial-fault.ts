import net from "node:net";
import { peerAction } from "../http/connection-end.ts";
import { noTlsBehind } from "../http/response-fields.ts";
import { CertificateFault, UnknownIssuer } from "../tls/server-certificate.ts";
import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import { CarrierLost, PeerViolation } from "./carrier-end.ts";
import { damagedAnswer, HELD_BACK, MiddleBox } from "./upgrade-answer.ts";

export const CONNECTING = "connecting";
export const SECURING = "in the TLS handshake";
export const UPGRADING = "waiting for the upgrade";
export const GREETING = "waiting for welcome";
export type DialStep = typeof CONNECTING | typeof SECURING | typeof UPGRADING | typeof GREETING;

/** A proxy that a connection goes through. */
export interface PassedProxy {
  /** As people call it. */
  readonly at: string;
  /** Who named it. */
  readonly from: string;
}

/** Where a dial stands, and on what. */
export interface Standing {
  readonly step: DialStep;
  /** The server's name. */
  readonly host: string;
  readonly proxy: PassedProxy | undefined;
  /** TLS stands, and the other end has chosen no protocol (ALPN), although HTTP/1.1 was offered. */
  readonly noProtocol?: boolean | undefined;
}

/** What answers speaks HTTP/2 and not HTTP/1.1, or does as servers of gRPC do. */
export class GrpcServer extends Error {
  override readonly name = "GrpcServer";
}

/** What answers is something else than TLS. */
export class NoTls extends Error {
  override readonly name = "NoTls";
  /** OpenSSL's. */
  readonly code: string | undefined;
  /** Who has opened the connection, where it was a proxy. */
  readonly proxy: PassedProxy | undefined;

  constructor(cause: NodeJS.ErrnoException, { step, proxy }: Standing) {
    const there = `what answers there does not speak TLS: check the port in --server (${step})`;
    super(proxy === undefined ? there : noTlsBehind(proxy.at), { cause });
    this.code = cause.code;
    this.proxy = proxy;
  }
}

/** The TLS handshake was broken off, or not answered. */
export class NoHandshake extends Error {
  override readonly name = "NoHandshake";
  /** Who has opened the connection, where it was a proxy. */
  readonly proxy: PassedProxy | undefined;

  constructor(message: string, proxy: PassedProxy | undefined, cause?: Error) {
    super(message, { cause });
    this.proxy = proxy;
  }
}

/** TCP and TLS are fine, and nothing comes through them. */
const LATE_AT: Partial<Record<DialStep, keyof typeof HELD_BACK>> = {
  [UPGRADING]: "no_answer",
  [GREETING]: "held_back",
};

/** A step has taken all the time there was. */
export function tooLate({ step, proxy }: Omit<Standing, "host">, sentence: string): Error {
  if (step === SECURING) {
    return new NoHandshake(`${sentence}: ${endless(proxy)}`, proxy);
  }
  const kind = LATE_AT[step];
  return kind === undefined ? new Error(sentence) : new MiddleBox(kind, `${sentence}: ${HELD_BACK[kind]}`);
}

/** Nobody can tell from here who does not answer. */
function endless(proxy: PassedProxy | undefined): string {
  if (proxy === undefined) {
    return "TCP stands, and the handshake comes to no end: does a firewall read server names, or is the port in --server another one? Else the server may hang: look at its log";
  }
  return `the proxy ${proxy.at} has opened the connection, and the handshake over it comes to no end: does the proxy let no TLS to the server through, or lead nowhere? Else the port in --server may be another one, or the server may hang`;
}

/** Why a carrier ended before its welcome: pings may find out before the deadline that nothing comes. */
export function unwelcomed(reason: Error): Error {
  const isSilent = reason instanceof CarrierLost && reason.lossCause === "silent";
  if (isSilent) return new MiddleBox("held_back", `${reason.message} ${GREETING}: ${HELD_BACK.held_back}`);
  const isDamaged = reason instanceof PeerViolation && reason.closeCode === CloseCode.protocolError;
  return isDamaged ? damagedAnswer(reason) : reason;
}

const SENTENCES = [LinkRefused, MiddleBox, UnknownIssuer, CertificateFault] as const;

/** Says at which step a network's error came, and who may be asked about it. What is a sentence already stays as it is. */
export function dialFault(error: Error, standing: Standing): Error {
  if (SENTENCES.some((kind) => error instanceof kind)) return error;
  const { step, host, proxy } = standing;
  const { code } = error as NodeJS.ErrnoException;
  if (NO_TLS.has(code)) return new NoTls(error, standing);
  if (code === UNRECOGNIZED_NAME) return Object.assign(new Error(unknownName(host)), { code });
  if (code === NO_PROTOCOL || isHttp2(error)) return new GrpcServer(`${GRPC_ALONE} (${step})`, { cause: error });
  const broken = peerAction(error);
  if (broken !== undefined && step === UPGRADING && standing.noProtocol === true) {
    return new GrpcServer(`${whoAnswers(proxy)} ${broken} ${LIKE_GRPC}`, { cause: error });
  }
  const suspects = SUSPECTS[step];
  if (broken !== undefined && suspects !== undefined) {
    const sentence = `${whoAnswers(proxy)} ${broken} ${suspects}`;
    return step === SECURING ? new NoHandshake(sentence, proxy, error) : new Error(sentence, { cause: error });
  }
  // Several addresses were tried: Node's error for all of them has no message of its own.
  const causes = error instanceof AggregateError ? (error.errors as Error[]) : [error];
  const words = causes.map(wordsOf).join("; ");
  const explained = new Error(`${words} (${step})`, { cause: error });
  return code === undefined ? explained : Object.assign(explained, { code });
}

/** Nobody can tell them apart from here. */
function whoAnswers(proxy: PassedProxy | undefined): string {
  return proxy === undefined ? "what answers there" : `the proxy ${proxy.at}, or what answers behind it,`;
}

/** Who breaks connections off at a step, and where that is to be seen. */
const SUSPECTS: Partial<Record<DialStep, string>> = {
  [SECURING]:
    "in the TLS handshake, as a router or balancer does that reaches no server: does the server run? If its log says nothing of this, does a firewall read server names, or is the port in --server another one?",
  [UPGRADING]:
    "in place of an answer to the upgrade: does something in between let no WebSockets through? Else look at the server's log",
};

/** OpenSSL tells where in its code an error was found; its reason alone is for people. */
function wordsOf(error: Error & { readonly reason?: string }): string {
  return error.reason !== undefined && error.message.includes(":error:") ? `TLS: ${error.reason}` : error.message;
}

/** OpenSSL's words for bytes that are no record of TLS. */
const NO_TLS: ReadonlySet<string | undefined> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
]);

/** Node's word for the alert of whoever speaks no HTTP/1.1 (RFC 7301 §3.2). */
const NO_PROTOCOL = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";
const GRPC_ALONE =
  "what answers there speaks HTTP/2 alone, as konnectivity-server (gRPC) does, and no culvert server: correct host and port in --server";
/** gRPC in Go goes like this from whoever comes without HTTP/2, once TLS stands; so may others. */
const LIKE_GRPC =
  "once TLS stood, as konnectivity-server (gRPC) does: does --server lead to a culvert server? If so, something in between lets no WebSockets through, or the server's log says more";

/** The first frame of every server of HTTP/2 is SETTINGS (RFC 9113 §3.4, §6.5), which is never longer than this. */
const SETTINGS = 0x04;
const MOST_SETTINGS = 0xff;

/** What has come in place of an answer in HTTP/1.1. */
function isHttp2(error: Error & { readonly rawPacket?: Buffer }): boolean {
  const { rawPacket } = error;
  if (rawPacket === undefined || rawPacket.length < 9) return false;
  return rawPacket.readUIntBE(0, 3) <= MOST_SETTINGS && rawPacket[3] === SETTINGS && rawPacket.readUInt32BE(5) === 0;
}

/** Node's word for the alert (RFC 6066 §3). */
const UNRECOGNIZED_NAME = "ERR_SSL_TLSV1_UNRECOGNIZED_NAME";

function unknownName(host: string): string {
  if (net.isIP(host) !== 0)
    return "the server is found by its name (SNI), and an address has none: give its name in --server";
  return `nobody there has the name "${host}" (SNI): check the name in --server; the server's clusters list theirs in agents.sni`;
}
