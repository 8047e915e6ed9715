import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type Socket } from "node:net";
import { ConfigError } from "../shared/config/options.ts";
import { readBoundedSync } from "../shared/documents/read-bounded.ts";
import { WatchedFiles } from "../shared/documents/watched-files.ts";
import type { SidecarContext } from "./context.ts";
import type { Socks5ProxyOptions } from "./options.ts";
import type { Refusal } from "./refusal.ts";
import { dialFor, relay } from "./relay.ts";
import { type LocalProtocol, type Sidecar, type SidecarDeps, startSidecar } from "./sidecar.ts";
import { REPLY, type Reply, replyOf, Socks5Reader, type Socks5Step, type VerifyLogin } from "./socks5-reader.ts";

/** `culvert socks5-proxy`. */
export async function startSocks5Proxy(options: Socks5ProxyOptions, deps: SidecarDeps): Promise<Sidecar> {
  const login = options.loginFile === "" ? undefined : watchedLogin(options.loginFile, deps);
  const verify = login && ((user: Buffer, password: Buffer) => isEqual(login.content, user, password));
  return startSidecar(options, deps, (context) => socks5(context, verify, () => login?.close()));
}

function socks5(context: SidecarContext, verify: VerifyLogin | undefined, close: () => void): LocalProtocol {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    void serve(client, new Socks5Reader(verify), context);
  });
  return { server, close };
}

/** One client, from its greeting to its last byte. */
async function serve(client: Socket, reader: Socks5Reader, context: SidecarContext): Promise<void> {
  const last = await lastStep(client, reader, context);
  if (last?.kind === "refuse") {
    context.metrics.clientRefused();
    context.throttledLog.write("warn", { reason: last.reason }, "connection of a client refused");
    client.end(last.bytes, () => client.destroy());
  }
  if (last?.kind !== "request") return;
  const { target, rest } = last;
  if (rest.length > 0) client.unshift(rest);
  try {
    const stream = await dialFor(client, target, context);
    client.write(replyOf(REPLY.succeeded));
    await relay(client, stream, target, context);
  } catch (error) {
    client.end(replyOf(replyTo(error as Refusal)), () => client.destroy());
  }
}

/** The step that ends the handshake; `undefined`: the client has left, or was too slow. */
function lastStep(client: Socket, reader: Socks5Reader, context: SidecarContext): Promise<Socks5Step | undefined> {
  return new Promise((resolve) => {
    const done = (step?: Socks5Step): void => {
      clearTimeout(timer);
      client.off("data", onData).off("end", onGone).off("close", onGone);
      client.pause();
      resolve(step);
    };
    const onGone = (): void => {
      client.destroy();
      done();
    };
    const onData = (chunk: Buffer): void => {
      for (const step of reader.push(chunk)) {
        if (step.kind === "answer") client.write(step.bytes);
        else done(step);
      }
    };
    const timer = setTimeout(() => {
      context.metrics.clientRefused();
      onGone();
    }, context.options.handshakeTimeoutMs);
    client.on("data", onData).on("end", onGone).on("close", onGone);
  });
}

/** The reply of RFC 1928 §6 that tells most of a refusal. */
function replyTo({ kind }: Refusal): Reply {
  return REPLIES.get(kind) ?? REPLY.failure;
}

const REPLIES = new Map<string, Reply>([
  ["http_request_denied", REPLY.notAllowed],
  ["destination_ip_prohibited", REPLY.notAllowed],
  ["destination_ip_unroutable", REPLY.networkUnreachable],
  ["dns_error", REPLY.hostUnreachable],
  ["connection_timeout", REPLY.hostUnreachable],
  ["connection_refused", REPLY.refused],
]);

// ── the password of clients ──────────────────────────────────────────────────────────────────────────────────────────

function watchedLogin(file: string, { log }: SidecarDeps): WatchedFiles<Buffer> {
  const load = (): Buffer => {
    const [line = ""] = readBoundedSync(file).toString("utf8").split(/\r?\n/, 1);
    if (!/^[^:]+:.+$/.test(line)) throw new ConfigError(`--login-file: ${file} needs a line user:password.`);
    return digest(Buffer.from(line));
  };
  const words = { renewed: "the login of clients was read again", unusable: "the login of clients cannot be used" };
  return new WatchedFiles({ paths: [file], load, ...words }, { log });
}

/** Digests have one length, and their comparison takes one time. */
function isEqual(login: Buffer, user: Buffer, password: Buffer): boolean {
  return timingSafeEqual(login, digest(Buffer.concat([user, Buffer.from(":"), password])));
}

function digest(bytes: Buffer): Buffer {
  return createHash("sha256").update(bytes).digest();
}
