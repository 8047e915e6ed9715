import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { TLSSocket } from "node:tls";
import { type CryptoKey, exportJWK, generateKeyPair, type JSONWebKeySet, SignJWT } from "jose";
import { type Logger, pino } from "pino";
import { stringify } from "yaml";
import { Authority } from "../../../shared/pki/certificates.ts";
import type { VerificationResult } from "../verifier.ts";

export const ISSUER = "https://kubernetes.default.svc";
export const SUBJECT = "system:serviceaccount:culvert:agent";

export async function tempDir(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  return dir;
}

/** A signal that never aborts. Each call makes a new one, as in the server. */
export const never = (): AbortSignal => new AbortController().signal;

export const nowS = (): number => Math.floor(Date.now() / 1_000);

/** An issuer of tokens, with one key. */
export class Issuer {
  readonly kid: string;
  readonly algorithm: string;
  readonly publicKey: CryptoKey;
  readonly #privateKey: CryptoKey;

  private constructor(kid: string, algorithm: string, keys: { publicKey: CryptoKey; privateKey: CryptoKey }) {
    this.kid = kid;
    this.algorithm = algorithm;
    this.publicKey = keys.publicKey;
    this.#privateKey = keys.privateKey;
  }

  static async create(kid = "k1", algorithm = "ES256"): Promise<Issuer> {
    return new Issuer(kid, algorithm, await generateKeyPair(algorithm, { extractable: true }));
  }

  /** A token that the verifiers of these tests accept, but for `change`; `undefined` leaves a claim out. */
  token(change: Readonly<Record<string, unknown>> = {}): Promise<string> {
    const claims = { iss: ISSUER, aud: ["culvert"], sub: SUBJECT, exp: nowS() + 3_600, ...change };
    return new SignJWT(JSON.parse(JSON.stringify(claims)))
      .setProtectedHeader({ alg: this.algorithm, kid: this.kid })
      .sign(this.#privateKey);
  }

  async keySet(): Promise<JSONWebKeySet> {
    return { keys: [{ ...(await exportJWK(this.publicKey)), kid: this.kid, alg: this.algorithm }] };
  }
}

/** The text of a token without a valid signature. */
export function unsigned(header: object, payload: object, signature = ""): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part(header)}.${part(payload)}.${signature}`;
}

/** A request to the HTTPS server of a test, with the name in the client certificate. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly authorization: string | undefined;
  readonly clientName: string | undefined;
  readonly body: string;
}

export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** An API server or an issuer on loopback. `answer` may be replaced at any time, and may never resolve. */
export class HttpsStub {
  readonly asked: Asked[] = [];
  readonly authority: Authority;
  answer: (asked: Asked) => Answer | Promise<Answer> = () => ({ status: 404, body: "" });
  readonly #server: Server;

  private constructor(authority: Authority, server: Server) {
    this.authority = authority;
    this.#server = server;
    server.on("request", async (request: IncomingMessage, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const asked = {
        method: request.method ?? "",
        path: request.url ?? "",
        authorization: request.headers.authorization,
        clientName: (request.socket as TLSSocket).getPeerX509Certificate()?.subject,
        body: Buffer.concat(chunks).toString("utf8"),
      };
      this.asked.push(asked);
      const { status, headers = {}, body } = await this.answer(asked);
      response.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
    });
  }

  static async start(t: TestContext): Promise<HttpsStub> {
    const authority = await Authority.create("api");
    const leaf = await authority.issue({ cn: "api", names: ["localhost", "kubernetes"], usage: "server" });
    const server = createServer({ ...leaf, ca: authority.cert, requestCert: true, rejectUnauthorized: false });
    const stub = new HttpsStub(authority, server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => stub.stop());
    return stub;
  }

  get url(): string {
    return `https://localhost:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Writes a kubeconfig with a client certificate into the folder, and returns its path. */
  async kubeconfig(folder: string): Promise<string> {
    const { cert, key } = await this.authority.issue({ cn: "culvert-server", usage: "client" });
    const base64 = (text: string) => Buffer.from(text).toString("base64");
    const config = {
      "current-context": "here",
      contexts: [{ name: "here", context: { cluster: "c", user: "u" } }],
      clusters: [
        { name: "c", cluster: { server: this.url, "certificate-authority-data": base64(this.authority.cert) } },
      ],
      users: [{ name: "u", user: { "client-certificate-data": base64(cert), "client-key-data": base64(key) } }],
    };
    const path = join(folder, "kubeconfig");
    await writeFile(path, stringify(config));
    return path;
  }

  /** Stops the server. */
  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

/** The sentence of a refusal, or what it was instead. */
export function refusal(result: VerificationResult): string {
  return "refused" in result ? result.refused : `no refusal: ${JSON.stringify(result)}`;
}

export function captureLog(): { log: Logger; messages: () => string[] } {
  const lines: string[] = [];
  const log = pino({ level: "debug" }, { write: (line) => lines.push(line) });
  return { log, messages: () => lines.map((line) => JSON.parse(line).msg) };
}

/** Whether the sentence holds a piece of the token that is long enough to be of use. */
export function showsPartOf(token: string, sentence: string): boolean {
  const LENGTH = 10;
  for (let at = 0; at + LENGTH <= token.length; at++) {
    if (sentence.includes(token.slice(at, at + LENGTH))) return true;
  }
  return false;
}
