import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

interface SocksUser {
  readonly user: string;
  readonly password: string;
}

/** A SOCKS 5 server without a login, or with one user. */
export class Microsocks implements AsyncDisposable {
  /** Without a scheme: the client chooses between `socks5` and `socks5h`. */
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

  /** One line for each connection that it has opened, with the requested name or address. */
  get log(): readonly string[] {
    return this.#service.output;
  }

  /** Drops all connections and starts again. */
  async restart(): Promise<void> {
    await this.#service.kill();
    await this.#service.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service[Symbol.asyncDispose]();
  }
}
