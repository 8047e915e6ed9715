import { valuesOf } from "../listeners/request-reader.ts";
import type { Answer } from "./refusal.ts";

/** More header lines than an agent, a proxy and a balancer write together. */
const MOST_LINES = 100;

/** What is looked at of a request. */
export interface StrictRequest {
  readonly httpVersion: string;
  /** Names and values in turn, as Node has them; its `headers` drop or join what comes twice. */
  readonly rawHeaders: readonly string[];
  /** It asks for a WebSocket. */
  readonly isUpgrade: boolean;
}

/**
 * What is wrong with a request on an agents' port before anybody asks who sent it; `undefined`: nothing. Strict where
 * what stands in front could read it in another way (RFC 9112 §11.2), or where it can be no agent's. Pure.
 */
export function requestFault({ httpVersion, rawHeaders, isUpgrade }: StrictRequest): Answer | undefined {
  const values = (name: string): string[] => valuesOf(rawHeaders, name);
  if (httpVersion !== "1.1") return refusal(505, `HTTP/${httpVersion} is not spoken here: agents upgrade by HTTP/1.1`);
  if (rawHeaders.length > 2 * MOST_LINES) return refusal(431, `the request has more than ${MOST_LINES} header lines`);
  if (values("host").length !== 1) return refusal(400, "a request needs one Host here");
  if (values("authorization").length > 1) return refusal(400, "the request has two Authorization lines: send one");
  if (!isUpgrade) return undefined;
  const ofBody = ["content-length", "transfer-encoding", "expect"].find((name) => values(name).length > 0);
  if (ofBody !== undefined) return refusal(400, `an upgrade has no body: leave ${ofBody} out`);
  if (values("sec-websocket-version").join() === "13") return undefined;
  // RFC 6455 §4.4.
  const headers = { upgrade: "websocket", "sec-websocket-version": "13" };
  return { ...refusal(426, "Sec-WebSocket-Version must be 13"), headers };
}

/**
 * A browser's page that would open a tunnel with the credential of its user; `undefined`: no browser's, or an allowed
 * one.
 */
export function originFault(rawHeaders: readonly string[], allowed: readonly string[]): Answer | undefined {
  const refused = valuesOf(rawHeaders, "origin").find((origin) => !allowed.includes(origin));
  return refused === undefined
    ? undefined
    : refusal(403, "requests with this Origin are refused (--agent-allowed-origins)");
}

function refusal(status: number, sentence: string): Answer {
  return { status, sentence, headers: {}, level: "info" };
}
