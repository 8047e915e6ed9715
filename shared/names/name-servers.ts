import { Resolver } from "node:dns/promises";
import { getOrMake } from "../basics/collections.ts";
import type { ResolvConf } from "./name-files.ts";

/** The name server has answered, and there is nothing of that name. Asking again or elsewhere would change nothing. */
const NOTHING = new Set(["ENOTFOUND", "ENODATA", "EBADNAME"]);
/** There was no answer. */
const SILENT = new Set(["ETIMEOUT", "ECONNREFUSED"]);

/**
 * Packets get lost, so that a question is sent again after these times, ms. Each copy waits as long as the first one:
 * an answer over a slow line may take seconds. (c-ares' own repetitions do not take answers to earlier ones.)
 */
const SENT_AGAIN_MS = [1_000, 3_000];
/** A server that has been silent for this time is not waited for alone: the next one is asked as well, ms. */
const NEXT_SERVER_MS = 1_000;
/** Sockets for the questions to one server. More questions than that share them. */
const MAX_SOCKETS = 128;

type Question<T> = (resolver: Resolver) => Promise<T>;

/** Asks name servers, by c-ares, which waits for no thread. One question never waits for another. */
export class NameServers {
  readonly #port: number;
  readonly #pools = new Map<string, Map<Resolver, number>>();
  #rotation = 0;

  constructor(port = 53) {
    this.#port = port;
  }

  /**
   * Resolves with the first answer. Rejects at once if a name server has answered that there is nothing, and all those
   * before it in the file have failed: it may be one that does not know the names of this network.
   */
  async ask<T>({ servers, rotate, timeoutMs, attempts }: ResolvConf, question: Question<T>, over?: AbortSignal) {
    const from = rotate ? this.#rotation++ % servers.length : 0;
    const inOrder = [...servers.slice(from), ...servers.slice(0, from)];
    for (let left = attempts - 1; ; left--) {
      try {
        return await this.#askAll(inOrder, timeoutMs, question);
      } catch (error) {
        if (left === 0 || !isSilence(error) || over?.aborted) throw error;
      }
    }
  }

  /** Rejects with the error that says most: that there is nothing, or that a server was silent, or the last one. */
  #askAll<T>(servers: readonly string[], timeoutMs: number, question: Question<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const errors: unknown[] = servers.map(() => undefined);
      let asked = 0;
      let isSettled = false;
      let timer: NodeJS.Timeout | undefined;
      const settle = (act: () => void): void => {
        isSettled = true;
        clearTimeout(timer);
        act();
      };
      const askNext = (): void => {
        clearTimeout(timer);
        const index = asked++;
        const server = servers[index];
        if (server === undefined) return;
        timer = setTimeout(askNext, NEXT_SERVER_MS);
        this.#askServer(server, timeoutMs, question).then(
          (answer) => settle(() => resolve(answer)),
          (error) => {
            if (isSettled) return;
            errors[index] = error;
            const waiting = errors.indexOf(undefined);
            const known = waiting === -1 ? errors : errors.slice(0, waiting);
            const nothing = known.find(isNothing);
            if (nothing !== undefined || waiting === -1)
              settle(() => reject(nothing ?? known.find(isSilence) ?? error));
            else if (asked === index + 1) askNext();
          },
        );
      };
      askNext();
    });
  }

  #askServer<T>(server: string, timeoutMs: number, question: Question<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timers = SENT_AGAIN_MS.filter((ms) => ms < timeoutMs).map((ms) => setTimeout(() => send(true), ms));
      const settle = (act: () => void): void => {
        for (const timer of timers) clearTimeout(timer);
        act();
      };
      const send = (isCopy: boolean): void => {
        this.#askOnce(server, timeoutMs, question).then(
          (answer) => settle(() => resolve(answer)),
          (error) => {
            if (!isCopy || !isSilence(error)) settle(() => reject(error));
          },
        );
      };
      send(false);
    });
  }

  /**
   * Each question has a resolver of its own, and so a source port of its own: answers are harder to forge, and the
   * questions for IPv4 and IPv6 do not race in the connection tracking of Kubernetes nodes.
   */
  async #askOnce<T>(server: string, timeoutMs: number, question: Question<T>): Promise<T> {
    const pool = getOrMake(this.#pools, server, () => new Map<Resolver, number>());
    const resolver = pool.size < MAX_SOCKETS ? this.#resolver(server, timeoutMs) : leastUsed(pool);
    pool.set(resolver, (pool.get(resolver) ?? 0) + 1);
    try {
      return await question(resolver);
    } finally {
      const others = (pool.get(resolver) ?? 1) - 1;
      if (others > 0) pool.set(resolver, others);
      else pool.delete(resolver);
      if (pool.size === 0) this.#pools.delete(server);
    }
  }

  #resolver(server: string, timeoutMs: number): Resolver {
    const resolver = new Resolver({ timeout: timeoutMs, tries: 1 });
    resolver.setServers([server.includes(":") ? `[${server}]:${this.#port}` : `${server}:${this.#port}`]);
    return resolver;
  }
}

function leastUsed(pool: ReadonlyMap<Resolver, number>): Resolver {
  let [least] = pool;
  for (const each of pool) if (least === undefined || each[1] < least[1]) least = each;
  if (least === undefined) throw new Error("no resolver is in use");
  return least[0];
}

/** No server has answered. */
export function isSilence(error: unknown): boolean {
  return hasCode(error, SILENT);
}

/** A server has answered that there is nothing of that name. */
export function isNothing(error: unknown): boolean {
  return hasCode(error, NOTHING);
}

function hasCode(error: unknown, codes: ReadonlySet<string>): boolean {
  return codes.has((error as NodeJS.ErrnoException).code ?? "");
}
