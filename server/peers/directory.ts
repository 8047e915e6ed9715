import { RecentMap } from "../../shared/basics/collections.ts";

/** Where a server can be reached by its peers. */
export interface Location {
  readonly serverId: string;
  /** `host:port` of its `--peer-address`. */
  readonly address: string;
}

/** A question to the directory: a server that has agents of this cluster, or the server with this id. */
export type DirectoryQuestion = { readonly cluster: string } | { readonly server: string };

/**
 * A server that answers the question; `silent`: a server could answer, and none has in time; `busy`: one has more
 * questions than it answers; `undefined`: there is none, or the directory cannot be asked now.
 */
export type DirectoryAnswer = Location | "silent" | "busy" | undefined;

/** The directory's present state. */
export interface DirectoryState {
  /** Whether other servers can be asked. */
  readonly canAsk: boolean;
  /** Whether it is connected, and to what, for operators. */
  readonly detail: string;
  /** Faults of a directory that is connected, in sentences for operators. */
  readonly faults: readonly string[];
  /** Why an agent may be at another server that was not found: the end of a sentence for callers. */
  readonly trouble: string | undefined;
}

/**
 * Says which server has agents of which cluster. It is trusted with nothing else: a forged answer names a peer that
 * cannot prove its certificate, or that has no agent of the cluster (docs/fleet.md).
 */
export interface Directory {
  /** From now on this server answers questions about the cluster, as long as it `takesStreams` for it. */
  join(cluster: string, takesStreams: () => boolean): void;
  leave(cluster: string): void;
  /** Resolves with the first location that `accepts` takes. Never rejects. */
  ask(question: DirectoryQuestion, accepts: (location: Location) => boolean): Promise<DirectoryAnswer>;
  readonly state: DirectoryState;
  /** Answers and asks nothing more. */
  close(): Promise<void>;
}

interface LocationsOptions {
  readonly directory: Directory;
  readonly metrics: { asked(result: string): void };
  /** The id of this server: an answer that leads back here is none. */
  readonly serverId: string;
  readonly now?: () => number;
}

/** How long an answer is used again, ms; and how long one that was of no use rests. */
export const CACHED_MS = 5_000;
/**
 * How long it is remembered that nobody has a cluster, or that a server is not found, ms: a little less than the 200 ms
 * after which a CONNECT that waits asks again, so that one that is alone does ask.
 */
export const NOBODY_MS = 195;
/** Questions that are on their way at once; more are not asked. */
const MAX_QUESTIONS = 1_024;
/** Locations that are remembered; one more forgets the oldest. There is at most one for each cluster that is served. */
export const MAX_CACHED = 20_000;

/** The directory's last answer about a cluster. */
interface LastAnswer {
  readonly location: Location;
  /** Until then it is used without a question, ms of `performance.now()`. */
  readonly untilMs: number;
  /** It was of no use: until then it is not used where the directory cannot be asked either. */
  readonly restsUntilMs: number;
}

/**
 * The directory's recent answers: CONNECTs of one cluster ask once every few seconds, and one at a time. The links of a
 * server that is gone are asked for by all its agents.
 *
 * Where the directory cannot be asked, or nobody who could answer does, the last answer is used however old it is: a
 * server that has the agents no more says so, and one that is no peer is left at once (decision 0048).
 */
export class Locations {
  readonly #options: LocationsOptions;
  readonly #now: () => number;
  readonly #last = new RecentMap<string, LastAnswer>(MAX_CACHED);
  /** By question: until when the answer is that there is nobody. */
  readonly #nobody = new RecentMap<string, number>(MAX_CACHED);
  readonly #asked = new Map<string, Promise<Location | undefined>>();
  /** Clusters whose servers have not answered the last question, and why. */
  readonly #unanswered = new RecentMap<string, "silent" | "busy">(MAX_CACHED);

  constructor(options: LocationsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  /** A server that has agents of the cluster; another one than these. Never rejects. */
  async ofCluster(cluster: string, except: readonly Location[] = []): Promise<Location | undefined> {
    const last = this.#last.get(cluster);
    if (last !== undefined && last.untilMs > this.#now() && !isAmong(last.location, except)) return last.location;
    const asksAll = except.length === 0;
    if (asksAll && this.#isNobody(cluster)) return undefined;
    const key = [cluster, ...except.flatMap(({ serverId, address }) => [serverId, address])].join(" ");
    const location = (await this.#once(key, { cluster }, except)) ?? this.#stale(cluster, except);
    if (location !== undefined) {
      this.#nobody.delete(cluster);
      this.#last.set(cluster, { location, untilMs: this.#now() + CACHED_MS, restsUntilMs: 0 });
    } else if (asksAll) this.#keepNobody(cluster);
    return location;
  }

  /** The last answer, where the directory has not said that it is not true any more. */
  #stale(cluster: string, except: readonly Location[]): Location | undefined {
    const last = this.#last.get(cluster);
    if (last === undefined || last.restsUntilMs > this.#now() || isAmong(last.location, except)) return undefined;
    const isUnknown = this.#unanswered.has(cluster) || !this.#options.directory.state.canAsk;
    return isUnknown ? last.location : undefined;
  }

  /** Where the server with this id is. Never rejects. */
  async ofServer(server: string): Promise<Location | undefined> {
    const key = `server ${server}`; // the name of a cluster has no space
    if (this.#isNobody(key)) return undefined;
    const location = await this.#once(key, { server });
    if (location === undefined) this.#keepNobody(key);
    return location;
  }

  /** The location was of no use: the next CONNECT asks again. */
  drop(cluster: string, location: Location): void {
    if (!isSame(this.#last.get(cluster)?.location, location)) return;
    this.#last.set(cluster, { location, untilMs: 0, restsUntilMs: this.#now() + CACHED_MS });
  }

  /** Why a server with agents of the cluster may be there although none is found: the end of a sentence. */
  trouble(cluster: string): string | undefined {
    const why = this.#unanswered.get(cluster);
    if (why === undefined) return undefined;
    const last = this.#last.get(cluster)?.location.serverId;
    const server = last === undefined ? "a server that may have one" : `server "${last}", which may have one,`;
    if (why === "busy") return `${server} has more questions of other servers than it answers: try again`;
    return `${server} does not respond: check ${last === undefined ? "the servers' processes" : "its process"}`;
  }

  /** Concurrent questions for the same are one. */
  #once(key: string, question: DirectoryQuestion, except: readonly Location[] = []): Promise<Location | undefined> {
    const underWay = this.#asked.get(key);
    if (underWay !== undefined) return underWay;
    if (this.#asked.size >= MAX_QUESTIONS) return Promise.resolve(undefined);
    const asked = this.#ask(question, except).finally(() => this.#asked.delete(key));
    this.#asked.set(key, asked);
    return asked;
  }

  async #ask(question: DirectoryQuestion, except: readonly Location[]): Promise<Location | undefined> {
    const { directory, metrics, serverId } = this.#options;
    const wanted = "server" in question ? question.server : undefined;
    const answer = await directory.ask(
      question,
      (each) => each.serverId !== serverId && (wanted ?? each.serverId) === each.serverId && !isAmong(each, except),
    );
    const location = typeof answer === "object" ? answer : undefined;
    if ("cluster" in question) {
      if (typeof answer === "string") this.#unanswered.set(question.cluster, answer);
      else this.#unanswered.delete(question.cluster);
    }
    metrics.asked(location !== undefined ? "found" : directory.state.canAsk ? "none" : "down");
    return location;
  }

  #isNobody(key: string): boolean {
    return (this.#nobody.get(key) ?? 0) > this.#now();
  }

  /** CONNECTs that wait for one cluster, or that come meanwhile, have one question in each step. */
  #keepNobody(key: string): void {
    this.#nobody.set(key, this.#now() + NOBODY_MS);
  }
}

function isAmong(location: Location, others: readonly Location[]): boolean {
  return others.some((other) => isSame(location, other));
}

function isSame(one: Location | undefined, other: Location | undefined): boolean {
  return one !== undefined && one.serverId === other?.serverId && one.address === other.address;
}
