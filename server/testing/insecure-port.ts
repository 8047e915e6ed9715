import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { connect as dialPlain } from "node:net";
import { join } from "node:path";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { ISSUER, Issuer, SUBJECT } from "../tokens/testing/tokens.ts";
import { collect, type TestServer, within } from "./server.ts";
import type { Tenants } from "./tenants.ts";

/** Opens the port without TLS in tests, which do not say its number: see `ServerDeps.listenEphemeral`. */
export const OPEN = { agentInsecureTrustedCidrs: ["127.0.0.0/8"] };

/** Another account than `SUBJECT` whose tokens are taken. */
export const OTHER = "system:serviceaccount:culvert:other";

const issuers = new Map<string, Issuer>();

const audienceOf = (name: string): string => `culvert-${name}`;

/** The tokens in a document. */
export function tokensOf(name: string) {
  const audience = audienceOf(name);
  return { token: { jwt: { issuer: ISSUER, audience, jwks: `${name}.jwks`, subjects: [SUBJECT, OTHER] } } };
}

/** The cluster takes tokens of an issuer of its own from now on. */
export async function trustTokens(all: Tenants, name: string): Promise<void> {
  const issuer = await Issuer.create(name);
  issuers.set(name, issuer);
  await writeFile(join(all.folder, `${name}.jwks`), JSON.stringify(await issuer.keySet()));
  await all.get(name).write({ agents: tokensOf(name) });
}

/** Of that issuer; `change` says what is special. */
export const tokenOf = (name: string, change?: Parameters<Issuer["token"]>[0]): Promise<string> =>
  issuers.get(name)?.token({ aud: [audienceOf(name)], ...change }) ?? assert.fail(name);

export function insecurePort({ addresses }: TestServer): number {
  return addresses["agents-insecure"]?.port ?? assert.fail("the port is off");
}

/** Says this on the port, and resolves with all that comes back until its end. */
export async function said(port: number, text: string | Buffer, host = "127.0.0.1"): Promise<string> {
  const socket = dialPlain({ port, host }).on("error", () => {});
  const reads = collect(socket);
  socket.write(text);
  await within(new Promise((resolve) => socket.on("close", resolve)), "the end of the connection");
  return reads.join("");
}

/** A request for a tunnel. */
export function request(...headers: readonly string[]): string {
  const upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"];
  const own = [`Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}`, `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`];
  return `${[`GET ${TUNNEL_PATH} HTTP/1.1`, ...headers, ...upgrade, ...own].join("\r\n")}\r\n\r\n`;
}

export const bearer = async (name: string): Promise<string> => `Authorization: Bearer ${await tokenOf(name)}`;
