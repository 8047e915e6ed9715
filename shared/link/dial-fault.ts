import net from "node:net";
import { DialFault } from "../faults/faults.ts";
import { noTlsBehind } from "../faults/tunnel-rows.ts";
import { peerAction } from "../http/connection-end.ts";
import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import { CarrierLost, PeerViolation } from "./carrier-end.ts";
import { damagedAnswer, HELD_BACK, middleboxFault } from "./upgrade-answer.ts";

export const CONNECTING = "connecting";
export const SECURING = "in the TLS handshake";
export const UPGRADING = "waiting for the upgrade";
export const GREETING = "waiting for welcome";
export type DialStep = typeof CONNECTING | typeof SECURING | typeof UPGRADING | typeof GREETING;

/** A proxy that a connection goes through. */
export interface PassedProxy {
  /** `formatProxy`. */
  readonly at: string;
  /** The option or variable that names it. */
  readonly from: string;
}

/** The step that a dial has reached, and the connection it uses. */
export interface DialProgress {
  readonly step: DialStep;
  /** The server's name. */
  readonly host: string;
  readonly proxy: PassedProxy | undefined;
  /** TLS is up, and the other end has chosen no protocol (ALPN), although HTTP/1.1 was offered. */
  readonly noProtocol?: boolean | undefined;
}

function factsOf({ host, proxy }: DialProgress): { readonly by: string; readonly proxyFrom?: string } {
  return proxy === undefined ? { by: host } : { by: proxy.at, proxyFrom: proxy.from };
}

/** The fault of a step that has taken all the time there was. */
export function timeoutFault(progress: DialProgress, sentence: string): Error {
  const { step, proxy } = progress;
  switch (step) {
    case CONNECTING:
      return new Error(sentence);
    case SECURING: {
      const facts = { ...factsOf(progress), handshake: "silent" } as const;
      return new DialFault("tls", `${sentence}: ${endlessHandshake(proxy)}`, { facts });
    }
    case UPGRADING:
      return middleboxFault("no_answer", `${sentence}: ${HELD_BACK.no_answer}`);
    case GREETING:
      return middleboxFault("held_back", `${sentence}: ${HELD_BACK.held_back}`);
  }
}

/** The agent cannot tell which of these does not answer. */
function endlessHandshake(proxy: PassedProxy | undefined): string {
  if (proxy === undefined) {
    return "TCP stands, and the handshake comes to no end: does a firewall read server names, or is the port in --server another one? Else the server may hang: look at its log";
  }
  return `the proxy ${proxy.at} has opened the connection, and the handshake over it comes to no end: does the proxy let no TLS to the server through, or lead nowhere? Else the port in --server may be another one, or the server may hang`;
}

/** Why a carrier ended before its welcome. Pings may find before the deadline that nothing arrives. */
export function unwelcomed(reason: Error): Error {
  if (reason instanceof CarrierLost && reason.lossCause === "silent") {
    return middleboxFault("held_back", `${reason.message} ${GREETING}: ${HELD_BACK.held_back}`);
  }
  const isDamaged = reason instanceof PeerViolation && reason.closeCode === CloseCode.protocolError;
  return isDamaged ? damagedAnswer(reason) : reason;
}

/** Adds the step to an error of the network, and what may cause it there. An error that is a sentence already stays. */
export function dialFault(error: Error, progress: DialProgress): Error {
  if (error instanceof LinkRefused || error instanceof DialFault) return error;
  const { step, host, proxy, noProtocol } = progress;
  const { code = "" } = error as NodeJS.ErrnoException;
  const options = { facts: factsOf(progress), cause: error };
  const ofServer = { facts: { by: host }, cause: error };
  if (NO_TLS.has(code)) {
    const atServer = `what answers there does not speak TLS: check the port in --server (${step})`;
    return new DialFault("no_tls", proxy === undefined ? atServer : noTlsBehind(proxy.at), options);
  }
  if (code === UNRECOGNIZED_NAME) return new DialFault("unknown_name", unknownName(host), ofServer);
  if (code === NO_PROTOCOL || isHttp2(error)) return new DialFault("grpc_server", `${HTTP2_ONLY} (${step})`, ofServer);
  const broken = peerAction(error);
  if (broken !== undefined && step === UPGRADING && noProtocol === true) {
    return new DialFault("grpc_server", `${peerOf(proxy)} ${broken} ${LIKE_GRPC}`, ofServer);
  }
  if (broken !== undefined && step === SECURING) {
    const facts = { ...options.facts, handshake: "cut" } as const;
    return new DialFault("tls", `${peerOf(proxy)} ${broken} ${CUT_HANDSHAKE}`, { ...options, facts });
  }
  if (broken !== undefined && step === UPGRADING) {
    return new Error(`${peerOf(proxy)} ${broken} ${CUT_UPGRADE}`, { cause: error });
  }
  // Several addresses were tried: Node's error for all of them has no message of its own.
  const causes = error instanceof AggregateError ? (error.errors as Error[]) : [error];
  const message = `${causes.map(wordsOf).join("; ")} (${step})`;
  if (step === SECURING) return new DialFault("tls", message, ofServer);
  return Object.assign(new Error(message, { cause: error }), code !== "" && { code });
}

function peerOf(proxy: PassedProxy | undefined): string {
  return proxy === undefined ? "what answers there" : `the proxy ${proxy.at}, or what answers behind it,`;
}

const CUT_HANDSHAKE =
  "in the TLS handshake, as a router or balancer does that reaches no server: does the server run? If its log says nothing of this, does a firewall read server names, or is the port in --server another one?";
const CUT_UPGRADE =
  "in place of an answer to the upgrade: does something in between let no WebSockets through? Else look at the server's log";

/** OpenSSL's message names a place in its code; its `reason` is for people. */
function wordsOf({ message, reason, code }: NodeJS.ErrnoException & { readonly reason?: string }): string {
  return reason !== undefined && code?.startsWith("ERR_SSL_") ? `TLS: ${reason} (${code})` : message;
}

/** OpenSSL's codes for bytes that are no TLS record. */
const NO_TLS: ReadonlySet<string> = new Set(["ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"]);

/** Node's code for the alert of a peer that speaks no HTTP/1.1 (RFC 7301 §3.2). */
const NO_PROTOCOL = "ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL";
const HTTP2_ONLY =
  "what answers there speaks HTTP/2 alone, as konnectivity-server (gRPC) does, and no culvert server: correct host and port in --server";
/** gRPC in Go closes so on clients without HTTP/2, once TLS is up; other servers may, too. */
const LIKE_GRPC =
  "once TLS stood, as konnectivity-server (gRPC) does: does --server lead to a culvert server? If so, something in between lets no WebSockets through, or the server's log says more";

/** The first frame of every HTTP/2 server is SETTINGS (RFC 9113 §3.4, §6.5), which is never longer than this. */
const SETTINGS = 0x04;
const MAX_SETTINGS_BYTES = 0xff;

/** An HTTP/2 frame came in place of an answer in HTTP/1.1. */
function isHttp2(error: Error & { readonly rawPacket?: Buffer }): boolean {
  const { rawPacket } = error;
  if (rawPacket === undefined || rawPacket.length < 9) return false;
  const length = rawPacket.readUIntBE(0, 3);
  return length <= MAX_SETTINGS_BYTES && rawPacket[3] === SETTINGS && rawPacket.readUInt32BE(5) === 0;
}

/** Node's code for the alert (RFC 6066 §3). */
const UNRECOGNIZED_NAME = "ERR_SSL_TLSV1_UNRECOGNIZED_NAME";

function unknownName(host: string): string {
  if (net.isIP(host) !== 0) {
    return "the server is found by its name (SNI), and an address has none: give its name in --server";
  }
  return `nobody there has the name "${host}" (SNI): check the name in --server; the server's clusters list theirs in agents.sni`;
}
