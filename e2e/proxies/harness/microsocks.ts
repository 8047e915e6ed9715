import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

export interface SocksUser {
  readonly user: string;
  readonly password: string;
}

/** A SOCKS 5 server: for everybody, or for one user. */
export class Microsocks implements AsyncDisposable {
  /** Without a scheme: whether names are resolved here (`socks5h`) is for the client to say. */
  readonly address = `${NAMES.proxy}:${PORTS.socks}`;
  readonly #service: Service;

  private constructor(service: Service) {
    this.#service = service;
  }

  static async start({ outside }: CorporateNetwork, known?: SocksUser): Promise<Microsocks> {
    const who = known ? ["-u", known.user, "-P", known.password] : [];
    const argv = ["microsocks", "-i", BORDER, "-p", String(PORTS.socks), ...who];
    return new Microsocks(await Service.start(outside, { name: "microsocks", argv, port: PORTS.socks }));
  }

  /** One line for each connection that it has made, with the name or address it was asked for. */
  get log(): readonly string[] {
    return this.#service.output;
  }

  /** Cuts every connection, and begins anew. */
  async restart(): Promise<void> {
    await this.#service.kill();
    await this.#service.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service[Symbol.asyncDispose]();
  }
}
