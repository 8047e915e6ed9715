import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type { TestContext } from "node:test";
import { inspect } from "node:util";
import { CredentialsFile } from "../proxy-credentials.ts";
import { RouteFault, type RouteFaultCode } from "../proxy-route.ts";
import { type OpenRouteOptions, ProxyRoutes, type ProxyRoutesOptions } from "../proxy-routes.ts";
import { reply, scripted } from "./scripted-socks.ts";

export const SERVER = { host: "culvert.example.com", port: 443 };

export function routes(options: Partial<ProxyRoutesOptions>): ProxyRoutes {
  return new ProxyRoutes({ proxies: [], pac: "", env: {}, ...options });
}

export async function rejected(
  out: ProxyRoutes,
  fault: RouteFaultCode,
  options: OpenRouteOptions = {},
  signal = never(),
  to = SERVER,
): Promise<RouteFault> {
  const error = await out.open(to, options, signal).then(
    () => assert.fail("a route was opened"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof RouteFault, inspect(error));
  assert.equal(error.fault, fault, error.message);
  return error;
}

export function never(): AbortSignal {
  return new AbortController().signal;
}

/** A SOCKS proxy that gives every request this reply. */
export function socks(t: TestContext, code: number) {
  return scripted(t, async (peer) => {
    await peer.readRequestWithoutLogin();
    peer.write(reply(code));
  });
}

/** An HTTP proxy that accepts one password, and the passwords that it got. */
export async function basicProxy(t: TestContext, password: string) {
  const shown: string[] = [];
  const url = await httpProxy(t, (authorization, socket) => {
    const [, word] = /^Basic (.*)$/.exec(authorization) ?? [];
    const said = Buffer.from(word ?? "", "base64").toString();
    if (word !== undefined) shown.push(said);
    const refusal =
      'HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm="x"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';
    socket.end(said === password ? "HTTP/1.1 200 OK\r\n\r\n" : refusal);
  });
  return { url, shown };
}

/** An HTTP proxy that answers by the authorization of each CONNECT, or an empty string. */
export async function httpProxy(
  t: TestContext,
  answer: (authorization: string, socket: Duplex) => void,
): Promise<string> {
  const proxy = createServer().on("connect", ({ headers }, socket) => {
    socket.on("error", () => {});
    answer(headers["proxy-authorization"] ?? "", socket);
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  t.after(() => proxy.close());
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

/** `--proxy-credentials-file`, and how to write another content into it. */
export function credentialsFile(t: TestContext, content: string) {
  const folder = mkdtempSync(join(tmpdir(), "culvert-routes-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "credentials");
  const write = (text: string): void => writeFileSync(path, text);
  write(content);
  return { credentials: new CredentialsFile(path), path, write };
}
