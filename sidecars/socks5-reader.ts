import { isIPv6, SocketAddress } from "node:net";
import { parseTarget, type Target } from "../shared/address/target.ts";

/** Replies of RFC 1928 §6. */
export const REPLY = {
  succeeded: 0,
  failure: 1,
  notAllowed: 2,
  networkUnreachable: 3,
  hostUnreachable: 4,
  refused: 5,
  commandNotSupported: 7,
  addressTypeNotSupported: 8,
} as const;
export type Reply = (typeof REPLY)[keyof typeof REPLY];

/** The next step after bytes of a client. After `request` and `refuse` nothing more is read. */
export type Socks5Step =
  | { readonly kind: "answer"; readonly bytes: Buffer }
  /** `rest`: bytes after the request, which are for the target. */
  | { readonly kind: "request"; readonly target: Target; readonly rest: Buffer }
  | { readonly kind: "refuse"; readonly bytes: Buffer; readonly reason: string };

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const USERNAME_PASSWORD = 2;
const NONE_ACCEPTABLE = 0xff;
const LOGIN_VERSION = 1;
const CONNECT = 1;
const IPV4 = 1;
const NAME = 3;
const IPV6 = 4;
const EMPTY = Buffer.alloc(0);

/** Is this the user and the password? They are bytes (RFC 1929 §2). */
export type VerifyLogin = (user: Buffer, password: Buffer) => boolean;

/**
 * Reads what a SOCKS 5 client sends before its data (RFC 1928 §3 and §4, RFC 1929 §2), in pieces of any size. It holds
 * one message at a time, of 515 bytes at most.
 *
 * ```
 *  greeting ─▶ login, if a password is wanted ─▶ request ─▶ done
 *      └────────────────────┴───────────────────────┴─────▶ done, refused
 * ```
 */
export class Socks5Reader {
  readonly #verify: VerifyLogin | undefined;
  #state: "greeting" | "login" | "request" | "done" = "greeting";
  #bytes: Buffer = EMPTY;

  /** Without `verify` no password is asked for. */
  constructor(verify?: VerifyLogin) {
    this.#verify = verify;
  }

  push(chunk: Buffer): Socks5Step[] {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
    const steps: Socks5Step[] = [];
    for (let step = this.#next(); step !== undefined; step = this.#next()) steps.push(step);
    return steps;
  }

  #next(): Socks5Step | undefined {
    switch (this.#state) {
      case "greeting":
        return this.#greeting();
      case "login":
        return this.#login();
      case "request":
        return this.#request();
      case "done":
        return undefined;
    }
  }

  /** VER, NMETHODS, METHODS. */
  #greeting(): Socks5Step | undefined {
    const [version, count] = this.#bytes;
    if (version !== undefined && version !== VERSION) return this.#refuse(EMPTY, "it does not speak SOCKS 5");
    if (count === undefined || this.#bytes.length < 2 + count) return undefined;
    const methods = this.#take(2 + count).subarray(2);
    const wanted = this.#verify === undefined ? NO_AUTHENTICATION : USERNAME_PASSWORD;
    if (!methods.includes(wanted)) {
      const reason = wanted === USERNAME_PASSWORD ? "it offers no password" : "it offers no access without a password";
      return this.#refuse(Buffer.of(VERSION, NONE_ACCEPTABLE), reason);
    }
    this.#state = wanted === USERNAME_PASSWORD ? "login" : "request";
    return { kind: "answer", bytes: Buffer.of(VERSION, wanted) };
  }

  /** VER, ULEN, UNAME, PLEN, PASSWD. */
  #login(): Socks5Step | undefined {
    const [version, userLength] = this.#bytes;
    if (version !== undefined && version !== LOGIN_VERSION) return this.#refuse(EMPTY, "its login cannot be read");
    if (userLength === undefined) return undefined;
    const passwordAt = 3 + userLength;
    const passwordLength = this.#bytes[passwordAt - 1];
    if (passwordLength === undefined || this.#bytes.length < passwordAt + passwordLength) return undefined;
    const login = this.#take(passwordAt + passwordLength);
    if (this.#verify?.(login.subarray(2, 2 + userLength), login.subarray(passwordAt)) !== true) {
      return this.#refuse(Buffer.of(LOGIN_VERSION, 1), "its user or password is wrong");
    }
    this.#state = "request";
    return { kind: "answer", bytes: Buffer.of(LOGIN_VERSION, 0) };
  }

  /** VER, CMD, RSV, ATYP, DST.ADDR, DST.PORT. */
  #request(): Socks5Step | undefined {
    const [version, command, , type, nameLength] = this.#bytes;
    if (version !== undefined && version !== VERSION) return this.#refuse(EMPTY, "its request cannot be read");
    if (type === undefined) return undefined;
    const size = type === IPV4 ? 4 : type === IPV6 ? 16 : type === NAME ? 1 + (nameLength ?? Number.NaN) : 0;
    // An unknown type has no known length, so the request cannot be read to its end.
    if (size === 0) return this.#refuse(replyOf(REPLY.addressTypeNotSupported), "its address has an unknown type");
    if (!(this.#bytes.length >= 4 + size + 2)) return undefined;
    const request = this.#take(4 + size + 2);
    if (command !== CONNECT) return this.#refuse(replyOf(REPLY.commandNotSupported), "it asks for more than CONNECT");
    return this.#connect(hostOf(type, request.subarray(4, 4 + size)), request.readUInt16BE(4 + size));
  }

  #connect(host: string, port: number): Socks5Step {
    try {
      const target = parseTarget(`${isIPv6(host) ? `[${host}]` : host}:${port}`);
      this.#state = "done";
      return { kind: "request", target, rest: this.#take(this.#bytes.length) };
    } catch (error) {
      return this.#refuse(replyOf(REPLY.failure), (error as Error).message);
    }
  }

  #refuse(bytes: Buffer, reason: string): Socks5Step {
    this.#state = "done";
    this.#bytes = EMPTY;
    return { kind: "refuse", bytes, reason };
  }

  #take(length: number): Buffer {
    const taken = this.#bytes.subarray(0, length);
    this.#bytes = this.#bytes.subarray(length);
    return taken;
  }
}

function hostOf(type: number, bytes: Buffer): string {
  if (type === IPV4) return bytes.join(".");
  if (type === NAME) return bytes.subarray(1).toString("latin1");
  const groups = Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16));
  return new SocketAddress({ family: "ipv6", address: groups.join(":") }).address;
}

/** The bound address is of no use to a client, and of none that a tunnel has. */
export function replyOf(reply: Reply): Buffer {
  return Buffer.of(VERSION, reply, 0, IPV4, 0, 0, 0, 0, 0, 0);
}
