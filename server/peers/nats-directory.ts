import { setTimeout as sleep } from "node:timers/promises";
import {
  AuthorizationError,
  type NatsConnection,
  NoRespondersError,
  PermissionViolationError,
  type Subscription,
  TimeoutError,
} from "@nats-io/transport-node";
import * as z from "zod";
import { parseTarget } from "../../shared/address/target.ts";
import { Backoff } from "../../shared/basics/backoff.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { seconds } from "../../shared/basics/text.ts";
import { printable } from "../../shared/outcomes.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { Directory, DirectoryAnswer, DirectoryQuestion, DirectoryState, Location } from "./directory.ts";
import { connectNats, DIAL_MS } from "./nats-connection.ts";

const PREFIX = "culvert.v1";
/** How long the first answer is waited for, ms. Where nobody holds a cluster, NATS says so at once. */
const ANSWER_MS = 1_000;
/** How long another answer is waited for when the first one is of no use, ms. */
const NEXT_ANSWER_MS = 100;
const MAX_ANSWER_BYTES = 1_024;
/**
 * Maximum number of questions that are answered in a second; every client of NATS can ask any number. Further
 * questions, bounded by `READ_RATE`, get an empty answer: this server is there.
 */
const ANSWERS_PER_S = 5_000;
/** How often a server with the id of this one is looked for, ms. */
const NAMESAKE_MS = 60_000;
/** NATS servers die and come back together with everything else: all servers of a fleet must not dial at once. */
const RECONNECT = { baseMs: 250, capMs: 2_000 };

/** A cluster for which this server is asked. */
interface HeldCluster {
  readonly takesStreams: () => boolean;
  subscription: Subscription | undefined;
}

const answerSchema = z.object({ server: z.string().min(1).max(128), address: z.string().max(300) });

/**
 * The directory in NATS. Nothing is stored there: a server that holds agents of a cluster listens to the subject of the
 * cluster, and answers who asks. Where nobody listens, NATS itself says so.
 *
 * A connection that is lost is replaced by a new one, and not by the client's own reconnect: files of credentials are
 * read again, and nothing waits in buffers meanwhile.
 *
 * ```
 *  culvert.v1.cluster.blue    who has agents of "blue"?   ─▶ {"server":"srv-2","address":"10.0.0.2:8096"}
 *  culvert.v1.server.srv-2    where is server "srv-2"?    ─▶ the same
 * ```
 */
export class NatsDirectory implements Directory {
  readonly #context: ServerContext;
  readonly #namesakeMs: number;
  readonly #location: Location;
  readonly #answer: string;
  readonly #held = new Map<string, HeldCluster>();
  readonly #answers = new TokenBucket({ perSecond: ANSWERS_PER_S, burst: ANSWERS_PER_S });
  readonly #retry = new Backoff(RECONNECT);
  #refusals = new NatsRefusals();
  /** Where another server with the id of this one is. */
  #namesake: string | undefined;
  #connection: NatsConnection | undefined;
  #reason = "it is being connected";
  #downSince = performance.now();
  readonly #closed = new AbortController();

  /**
   * Begins to connect, and does not wait: agents of this server work without a directory. `namesakeMs`: how often a
   * server with the id of this one is looked for.
   */
  constructor(location: Location, context: ServerContext, namesakeMs = NAMESAKE_MS) {
    const { serverId, address } = location;
    this.#context = context;
    this.#namesakeMs = namesakeMs;
    this.#location = location;
    this.#answer = JSON.stringify({ server: serverId, address });
    void this.#run();
  }

  get state(): DirectoryState {
    if (this.#connection === undefined) {
      const seconds = Math.round((performance.now() - this.#downSince) / 1_000);
      const detail = `not connected for ${seconds} s: ${this.#reason}; agents of this server work`;
      const trouble = "other servers cannot be found: the directory is not reachable";
      return { canAsk: false, detail, faults: [], trouble };
    }
    const namesake = this.#namesake;
    const sentence = `another server with this --server-id answers at ${namesake}: give each its own`;
    const faults = [...(namesake === undefined ? [] : [sentence]), ...this.#refusals.sentences()];
    const canAsk = !this.#refusals.hindersAsking;
    return { canAsk, detail: `connected through ${this.#through}`, faults, trouble: this.#trouble };
  }

  get #trouble(): string | undefined {
    if (this.#refusals.hindersAsking) return "other servers could not be asked: NATS does not permit it";
    if (this.#namesake !== undefined) return "another server has the --server-id of this one: give each its own";
    return undefined;
  }

  join(cluster: string, takesStreams: () => boolean): void {
    if (this.#held.has(cluster)) return;
    this.#held.set(cluster, { takesStreams, subscription: this.#listen(clusterSubject(cluster), takesStreams) });
  }

  leave(cluster: string): void {
    this.#held.get(cluster)?.subscription?.unsubscribe();
    this.#held.delete(cluster);
  }

  async ask(question: DirectoryQuestion, accepts: (location: Location) => boolean): Promise<DirectoryAnswer> {
    const connection = this.#connection;
    if (connection === undefined) return undefined;
    const subject = "cluster" in question ? clusterSubject(question.cluster) : serverSubject(question.server);
    let unanswered: "silent" | "busy" | undefined = "silent";
    try {
      const answers = await connection.requestMany(subject, "", {
        strategy: "stall",
        maxWait: ANSWER_MS,
        stall: NEXT_ANSWER_MS,
      });
      for await (const { data } of answers) {
        this.#refusals.asked();
        if (data.length === 0) unanswered = "busy";
        else if (unanswered === "silent") unanswered = undefined;
        const location = parseAnswer(data);
        if (location !== undefined && accepts(location)) return location;
      }
    } catch (error) {
      // Nobody listens to the subject, or the connection was lost, or NATS does not permit it: nobody can be named.
      unanswered = undefined;
      if (error instanceof NoRespondersError) this.#refusals.asked();
      else if (error instanceof PermissionViolationError) this.#refusals.add(error);
    }
    return unanswered;
  }

  async close(): Promise<void> {
    this.#closed.abort();
    await this.#connection?.close();
  }

  // ── the connection ─────────────────────────────────────────────────────────────────────────────────────────────

  async #run(): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      const startedAt = performance.now();
      try {
        const connection = await connectNats(this.#context.options);
        this.#retry.connected();
        const why = await this.#use(connection);
        this.#retry.ended("lost", performance.now() - startedAt);
        this.#down(why === undefined ? "the connection was closed" : reasonOf(why));
      } catch (error) {
        this.#retry.attemptFailed();
        this.#down(reasonOf(error as Error));
      }
      await sleep(this.#retry.waitMs(), undefined, { signal }).catch(() => {});
    }
  }

  async #use(connection: NatsConnection): Promise<Error | undefined> {
    if (this.#closed.signal.aborted) await connection.close();
    else {
      this.#connection = connection;
      this.#refusals = new NatsRefusals();
      this.#namesake = undefined;
      this.#context.log.info({ server: this.#through }, "directory connected");
      this.#listen(serverSubject(this.#location.serverId));
      for (const [cluster, held] of this.#held) {
        held.subscription = this.#listen(clusterSubject(cluster), held.takesStreams);
      }
      void this.#watch(connection);
      void this.#lookForNamesake(connection);
    }
    const why = await connection.closed();
    this.#connection = undefined;
    this.#downSince = performance.now();
    return why instanceof Error ? why : undefined;
  }

  get #through(): string {
    return printable(this.#connection?.getServer() ?? "", 100);
  }

  /** Errors of single subjects do not end a connection: NATS has no permission for them. */
  async #watch(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) {
      if (status.type !== "error") continue;
      if (status.error instanceof PermissionViolationError) this.#refusals.add(status.error);
      const reason = printable(status.error.message);
      this.#context.throttledLog.write("warn", { reason }, "the directory refuses something");
    }
  }

  /**
   * NATS gives this server no answers of its own, so one in its name is another server's. Links and CONNECTs of both
   * would be looked for at either. A process that has ended answers no more, and one that takes its place is there,
   * too.
   */
  async #lookForNamesake(connection: NatsConnection): Promise<void> {
    const { serverId, address } = this.#location;
    const isNamesake = (other: Location) => other.serverId === serverId && other.address !== address;
    while (this.#connection === connection) {
      const found = await this.ask({ server: serverId }, isNamesake);
      if (this.#connection !== connection) return;
      this.#namesake = typeof found === "object" ? printable(found.address, 100) : undefined;
      if (this.#namesake !== undefined) {
        const message = "another server has this --server-id: give each its own";
        this.#context.throttledLog.write("error", { serverId, address: this.#namesake }, message);
      }
      await sleep(this.#namesakeMs, undefined, { ref: false });
    }
  }

  #down(reason: string): void {
    this.#reason = printable(reason);
    if (!this.#closed.signal.aborted)
      this.#context.throttledLog.write("warn", { reason: this.#reason }, "directory not connected");
  }

  /** Listens to questions. This server is silent, and others answer, while its agents leave. */
  #listen(subject: string, answers = () => true): Subscription | undefined {
    return this.#connection?.subscribe(subject, {
      callback: (error, message) => {
        if (error === null && answers()) message.respond(this.#answers.take(1) === 0 ? this.#answer : "");
      },
    });
  }
}

/** Why there is no connection. NATS names no option with credentials that it refuses, or that it misses. */
function reasonOf(error: Error): string {
  if (error instanceof TimeoutError) {
    const within = seconds(DIAL_MS);
    return `a NATS server of --directory took longer than ${within}: check its process, and firewalls on the way`;
  }
  if (!(error instanceof AuthorizationError)) return error.message;
  return `NATS refused the credentials: ${error.message}; check --directory-credentials and the users of NATS`;
}

function clusterSubject(cluster: string): string {
  return `${PREFIX}.cluster.${cluster}`;
}

/** A dot would begin another token of the subject. */
function serverSubject(serverId: string): string {
  return `${PREFIX}.server.${serverId.replaceAll(".", "=")}`;
}

/** `undefined`: it is none. Anybody may have written it. */
function parseAnswer(data: Uint8Array): Location | undefined {
  if (data.length > MAX_ANSWER_BYTES) return undefined;
  try {
    const { server, address } = answerSchema.parse(JSON.parse(Buffer.from(data).toString("utf8")));
    parseTarget(address);
    return { serverId: printable(server), address };
  } catch {
    return undefined;
  }
}

/** The purpose of each permission, and the subject that has to be allowed. */
const ALLOW = {
  "publish question": "allow culvert.v1.>",
  "publish answer": "allow answers (allow_responses)",
  "subscription question": "allow culvert.v1.>",
  "subscription answer": "allow _INBOX.>",
} as const;

type RefusedKind = keyof typeof ALLOW;

/** Without these no other server can be asked. */
const FOR_ASKING: readonly RefusedKind[] = ["publish question", "subscription answer"];

/** Subjects that NATS refuses on the present connection: the last one of each kind. */
class NatsRefusals {
  readonly #subjects = new Map<RefusedKind, string>();

  add({ operation, subject }: PermissionViolationError): void {
    this.#subjects.set(
      `${operation} ${subject.startsWith("_INBOX.") ? "answer" : "question"}`,
      printable(subject, 100),
    );
  }

  /** A question has come through, and its answer. */
  asked(): void {
    for (const kind of FOR_ASKING) this.#subjects.delete(kind);
  }

  get hindersAsking(): boolean {
    return FOR_ASKING.some((kind) => this.#subjects.has(kind));
  }

  /** For operators. */
  sentences(): string[] {
    return [...this.#subjects].map(([kind, subject]) => {
      const verb = kind.startsWith("publish") ? "publish" : "subscribe";
      return `NATS refuses to let this server ${verb} ${subject}: ${ALLOW[kind]}`;
    });
  }
}
