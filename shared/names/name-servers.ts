import { Resolver } from "node:dns/promises";
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
/** A server that was silent is asked after the others for this time, ms. Then one question tries it again. */
const AVOIDED_MS = 30_000;
/** Sockets for the questions to one server. More questions than that share them. */
const MAX_SOCKETS = 128;

/** Asks name servers, by c-ares, which waits for no thread. One question never waits for another. */
export class NameServers {
  readonly #port: number;
  readonly #avoidedUntil = new Map<string, number>();
  readonly #pools = new Map<string, Map<Resolver, number>>();
  #rotation = 0;

  constructor(port = 53) {
    this.#port = port;
  }

  /** Rejects with the error of the last server that was asked, or at once if one has answered that there is nothing. */
  async ask<T>(conf: ResolvConf, question: (resolver: Resolver) => Promise<T>): Promise<T> {
    let failure: unknown;
    for (let attempt = 0; attempt < conf.attempts; attempt++) {
      let isSilent = false;
      for (const server of this.#inOrder(conf)) {
        try {
          const answer = await this.#askServer(server, conf.timeoutMs, question);
          this.#avoidedUntil.delete(server);
          return answer;
        } catch (error) {
          failure = error;
          if (hasCode(error, NOTHING)) {
            this.#avoidedUntil.delete(server);
            throw error;
          }
          if (!isSilence(error)) continue;
          isSilent = true;
          this.#avoidedUntil.set(server, performance.now() + AVOIDED_MS);
        }
      }
      if (!isSilent) break;
    }
    throw failure;
  }

  #inOrder({ servers, rotate }: ResolvConf): readonly string[] {
    const from = rotate ? this.#rotation++ % servers.length : 0;
    const turned = [...servers.slice(from), ...servers.slice(0, from)];
    const now = performance.now();
    const avoided = turned.filter((server) => now < (this.#avoidedUntil.get(server) ?? 0));
    // This question tries again a server whose time is over. Others leave it last until there is an answer.
    for (const server of turned) {
      if (this.#avoidedUntil.has(server) && !avoided.includes(server)) {
        this.#avoidedUntil.set(server, now + AVOIDED_MS);
      }
    }
    return [...turned.filter((server) => !avoided.includes(server)), ...avoided];
  }

  #askServer<T>(server: string, timeoutMs: number, question: (resolver: Resolver) => Promise<T>): Promise<T> {
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
  async #askOnce<T>(server: string, timeoutMs: number, question: (resolver: Resolver) => Promise<T>): Promise<T> {
    const pool = this.#pools.get(server) ?? new Map<Resolver, number>();
    this.#pools.set(server, pool);
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
