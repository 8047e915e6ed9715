import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { TLSSocket } from "node:tls";
import { stringify } from "yaml";
import type { Authority } from "../../pki/certificates.ts";
import { issuingAuthority } from "../../pki/testing/chains.ts";

/** A signal that never aborts. Each call makes a new one, as in the server. */
export const never = (): AbortSignal => new AbortController().signal;

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
  /** Writes a body that goes on, in place of `body`. */
  readonly stream?: (response: ServerResponse) => void;
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
      const { status, headers = {}, body, stream } = await this.answer(asked);
      response.writeHead(status, headers);
      if (stream) stream(response);
      else response.end(typeof body === "string" ? body : JSON.stringify(body));
    });
  }

  static async start(t: TestContext): Promise<HttpsStub> {
    const authority = await issuingAuthority("api");
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
