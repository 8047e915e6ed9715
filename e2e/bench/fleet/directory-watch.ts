import { connect, type NatsConnection } from "@nats-io/transport-node";
import { runConcurrently } from "../../harness/concurrently.ts";

const AT_ONCE = 64;
const ANSWER_MS = 1_000;

/** Asks the directory as a server would. */
export class DirectoryWatch implements AsyncDisposable {
  /** Questions that were answered. */
  messages = 0;
  readonly #connection: NatsConnection;

  private constructor(connection: NatsConnection) {
    this.#connection = connection;
  }

  static async connect(servers: string[]): Promise<DirectoryWatch> {
    return new DirectoryWatch(await connect({ servers }));
  }

  /** How many of the clusters are held by one of these servers, by the first answer. */
  async held(clusters: readonly string[], servers: ReadonlySet<string>): Promise<number> {
    let held = 0;
    await runConcurrently(clusters.length, AT_ONCE, async (index) => {
      if (servers.has((await this.#holder(`culvert.v1.cluster.${clusters[index]}`)) ?? "")) held++;
    });
    return held;
  }

  /** Whether this server can be found. */
  async knows(server: string): Promise<boolean> {
    return (await this.#holder(`culvert.v1.server.${server}`)) === server;
  }

  async #holder(subject: string): Promise<string | undefined> {
    try {
      const answer = await this.#connection.request(subject, "", { timeout: ANSWER_MS });
      this.messages++;
      return (answer.json() as { server: string }).server;
    } catch {
      return undefined; // nobody listens
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#connection.close();
  }
}
