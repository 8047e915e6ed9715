import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { createServer, type Server } from "node:tls";
import { Authority } from "../../shared/pki/certificates.ts";

/** A balancer that ends TLS under a CA of its own, and passes on in clear what it reads. */
export class Balancer implements AsyncDisposable {
  readonly authority: Authority;
  /** The PROXY header in front of each connection. */
  header: Buffer | undefined;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(authority: Authority, server: Server) {
    this.authority = authority;
    this.#server = server;
  }

  /** Before the server on this port of this machine; it shows a certificate for `names`. */
  static async start(port: number, names: readonly string[]): Promise<Balancer> {
    const authority = await Authority.create("balancer");
    const leaf = await authority.issue({ cn: "balancer", names: [...names], usage: "server" });
    const balancer = new Balancer(authority, createServer(leaf));
    balancer.#server.on("tlsClientError", () => {});
    balancer.#server.on("secureConnection", (near) => balancer.#lead(near, port));
    await once(balancer.#server.listen(0, "127.0.0.1"), "listening");
    return balancer;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Ends every connection that goes through it now, as its restart does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #lead(near: Socket, port: number): void {
    const far = connect({ port, host: "127.0.0.1", noDelay: true });
    for (const socket of [near, far]) {
      this.#sockets.add(socket.on("error", () => {}));
      socket.on("close", () => this.#sockets.delete(socket));
    }
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
    if (this.header !== undefined) far.write(this.header);
    near.pipe(far).pipe(near);
  }
}
