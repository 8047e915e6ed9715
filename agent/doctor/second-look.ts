import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { type ConnectionOptions, connect, type TLSSocket } from "node:tls";
import { sniOf } from "../../shared/address/server-name.ts";
import { revealsSecret } from "../../shared/basics/text.ts";
import { isCallersPort } from "../../shared/link/dial-faults.ts";
import { printable } from "../../shared/outcomes.ts";
import { version } from "../../shared/runtime/build-info.ts";
import { DOCTOR } from "../../shared/wire/handshake.ts";
import { chainOf } from "./certificates.ts";
import type { ChainLink } from "./report.ts";

/** How a doctor names itself to a server: in its hello, and as the User-Agent of its second look. */
export const DOCTOR_SOFTWARE = `${DOCTOR}/${version()}`;

export interface LookOptions {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly tls: Pick<ConnectionOptions, "minVersion" | "ciphers">;
}

/** Who answers in the server's place, and what time it is there. */
export interface SecondLook {
  readonly chain: readonly ChainLink[];
  /** Of the answer's Date header, ms since 1970. */
  readonly time: number | undefined;
  /** A culvert server's port for callers has answered. */
  readonly isCallersPort: boolean;
}

/**
 * A second look where the certificate was not good: the peer is asked for the page that an agent asks for. It sees
 * nothing of ours: neither certificate nor token.
 */
export async function lookAt(socket: Socket, options: LookOptions, signal: AbortSignal): Promise<SecondLook> {
  const { host, tls } = options;
  const secure = connect({ ...tls, socket, host, ...sniOf(host), rejectUnauthorized: false });
  const onAbort = (): void => void secure.destroy(signal.reason as Error);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort(); // the way there took all the time
  try {
    await new Promise((resolve, reject) =>
      secure.once("secureConnect", resolve).on("error", reject).once("close", reject),
    );
    const chain = chainOf(secure.getPeerX509Certificate());
    const answer = await answerOf(secure, options);
    return {
      chain,
      time: answer && dateOf(answer),
      isCallersPort: answer !== undefined && isCallersPort(answer),
    };
  } finally {
    signal.removeEventListener("abort", onAbort);
    secure.destroy();
  }
}

/** `undefined`: nothing came that is one. */
async function answerOf(secure: TLSSocket, { host, port, path }: LookOptions): Promise<IncomingMessage | undefined> {
  const answer = await new Promise<IncomingMessage | undefined>((resolve) => {
    const headers = { connection: "close", "user-agent": DOCTOR_SOFTWARE };
    const asked = request({ createConnection: () => secure, host, port, path, headers });
    asked.once("response", resolve).on("error", () => resolve(undefined));
    asked.end();
  });
  return answer?.resume();
}

/** RFC 9110 §6.6.1. */
export function dateOf({ headers }: Pick<IncomingMessage, "headers">): number | undefined {
  const time = Date.parse(headers.date ?? "");
  return Number.isNaN(time) ? undefined : time;
}

/** Maximum length of each name: a middlebox may write more than a line of a report holds. */
const MAX_NAME = 60;

/**
 * Middleboxes on the way put their names into answers; a culvert server writes neither `Server` nor `Via`. Pure.
 * `secret`: what was sent in confidence, and may come back.
 */
export function middleboxNames(headers: IncomingHttpHeaders, secret = ""): string {
  return ["server", "via"].map((field) => named(field, String(headers[field] ?? ""), secret)).join("");
}

function named(field: string, text: string, secret: string): string {
  const name = revealsSecret(text, secret) ? "(not shown: it repeats our token)" : printable(text, MAX_NAME);
  return name === "" ? "" : `, ${field} "${name}"`;
}
