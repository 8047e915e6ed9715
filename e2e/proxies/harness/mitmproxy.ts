import { readFileSync, writeFileSync } from "node:fs";
import { TempDir } from "../../harness/temp.ts";
import { waitFor } from "../../harness/wait.ts";
import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

export interface MitmproxyOptions {
  /** The file (PEM) by which it judges the servers it speaks to. */
  readonly upstreamCa: string;
  /** Certificate and key (PEM) that it shows to them. */
  readonly clientPair?: string;
}

/** A proxy that opens TLS with a CA of its own, and writes down what it reads. */
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
    try {
      const service = await Service.start(outside, { name: "mitmdump", argv, port: PORTS.inspecting });
      // The CA's files are written at the start.
      await waitFor(() => readFileSync(dir.file("mitmproxy-ca-cert.pem"), "utf8").includes("END"));
      return new Mitmproxy(dir, service);
    } catch (error) {
      dir[Symbol.dispose]();
      throw error;
    }
  }

  /** What those have to trust whose TLS it opens. */
  get caFile(): string {
    return this.#dir.file("mitmproxy-ca-cert.pem");
  }

  /** Cuts every connection, and begins anew with the same CA. */
  async restart(): Promise<void> {
    await this.#service.kill();
    await this.#service.start();
  }

  /** Ends it, for it writes to the end of its file only then; everything it has read. */
  async flows(): Promise<Buffer> {
    await this.#service.stop();
    return readFileSync(this.#dir.file("flows"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service[Symbol.asyncDispose]();
    this.#dir[Symbol.dispose]();
  }
}
