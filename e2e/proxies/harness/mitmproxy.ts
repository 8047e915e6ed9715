import { readFileSync, writeFileSync } from "node:fs";
import { started } from "../../harness/started.ts";
import { TempDir } from "../../harness/temp.ts";
import { waitFor } from "../../harness/wait.ts";
import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

interface MitmproxyOptions {
  /** The CA file by which it verifies servers. */
  readonly upstreamCa: string;
  /** The certificate and key (PEM) that it presents to servers. */
  readonly clientPair?: string;
}

/** A proxy that intercepts TLS with a CA of its own and records what it reads. */
export class Mitmproxy implements AsyncDisposable {
  readonly url = `http://${NAMES.proxy}:${PORTS.inspecting}`;
  readonly #dir: TempDir;
  readonly #service: Service;

  private constructor(dir: TempDir, service: Service) {
    this.#dir = dir;
    this.#service = service;
  }

  static async start({ outside }: CorporateNetwork, { upstreamCa, clientPair }: MitmproxyOptions): Promise<Mitmproxy> {
    const dir = new TempDir();
    const options = [`confdir=${dir.path}`, `ssl_verify_upstream_trusted_ca=${upstreamCa}`];
    if (clientPair) {
      writeFileSync(dir.file("client.pem"), clientPair);
      options.push(`client_certs=${dir.file("client.pem")}`);
    }
    const argv = [
      ...["mitmdump", "--listen-host", BORDER, "--listen-port", String(PORTS.inspecting)],
      ...["-w", dir.file("flows"), ...options.flatMap((option) => ["--set", option])],
    ];
    const service = await Service.start(outside, { name: "mitmdump", argv, port: PORTS.inspecting, dir });
    return await started(new Mitmproxy(dir, service), (proxy) =>
      // It writes the files of its CA when it starts.
      waitFor(() => readFileSync(proxy.caFile, "utf8").includes("END")),
    );
  }

  /** The CA that a client must trust for its TLS to be intercepted. */
  get caFile(): string {
    return this.#dir.file("mitmproxy-ca-cert.pem");
  }

  /** Drops all connections and starts again with the same CA. */
  async restart(): Promise<void> {
    await this.#service.kill();
    await this.#service.start();
  }

  /** Stops it, because only then its file is complete, and returns everything that it has read. */
  async flows(): Promise<Buffer> {
    await this.#service.stop();
    return readFileSync(this.#dir.file("flows"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service[Symbol.asyncDispose]();
  }
}
