import { lstatSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { ConfigError } from "../../shared/config/options.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { bindUnix, clearPath, type UnixSocketOptions } from "./unix-socket.ts";

export interface UnixListenerOptions extends UnixSocketOptions {
  onSocket(socket: Socket): void;
  readonly log: Logger;
  /** How often the file is looked at, ms. */
  readonly lookMs?: number;
}

const LOOK_MS = 1_000;

/**
 * A unix socket that stays where callers look for it.
 *
 * Its file may be removed or replaced under a running server: by a cleaner of /tmp, with the folder it is in, by another
 * server. The kernel tells nobody, and the server would listen where no caller can come. So the file is looked at; when
 * it is another, or none, the server says so and listens anew, if the path can be had. Connections that are open live on.
 */
export class UnixListener {
  readonly #options: UnixListenerOptions;
  #server: Server | undefined;
  /** Which file is ours. */
  #file: string | undefined;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #closed = false;

  constructor(options: UnixListenerOptions) {
    this.#options = options;
  }

  /** If the path cannot be had, rejects with a `ConfigError`, and tries again at each look until it is closed. */
  async open(): Promise<void> {
    const opening = this.#listenAnew();
    this.#during(
      opening.catch((error: Error) => {
        this.#problem = error.message; // whoever opens says it
      }),
    );
    await opening;
  }

  /** Can callers come, and if not, why? */
  get state(): { readonly up: boolean; readonly problem: string | undefined } {
    const up = this.#server !== undefined && this.#problem === undefined && !this.#closed;
    return { up, problem: this.#problem };
  }

  /** Stops listening and removes the file, if it is ours. Resolves when the connections that came have ended, too. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    if (this.#looking !== undefined) await this.#looking;
    const server = this.#server;
    if (server === undefined) return;
    if (this.#isOthers()) {
      // Closing would remove the other's file. Nobody can come here any more, and the end of the process closes it.
      server.unref();
      return;
    }
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }

  async #bind(): Promise<void> {
    this.#server = await bindUnix(this.#options, this.#options.onSocket);
    this.#file = fileAt(this.#options.path);
  }

  #lookLater(): void {
    this.#timer = setTimeout(() => this.#during(this.#look()), this.#options.lookMs ?? LOOK_MS).unref();
  }

  /** One look at a time, and the next a while after it. */
  #during(look: Promise<void>): void {
    this.#looking = look.finally(() => {
      this.#looking = undefined;
      if (!this.#closed) this.#lookLater();
    });
  }

  async #look(): Promise<void> {
    const { path, option } = this.#options;
    try {
      if (this.#server === undefined || this.#file === undefined || fileAt(path) !== this.#file) {
        this.#say(this.#problem ?? `${option}: ${path} was removed or replaced while this server listened on it`);
        await this.#listenAnew();
      }
      this.#say(undefined);
    } catch (error) {
      this.#say((error as Error).message);
    }
  }

  async #listenAnew(): Promise<void> {
    const { path, option } = this.#options;
    await clearPath(this.#options);
    if (this.#closed) return;
    // In one turn with the close: what another server put there in between, the close would remove.
    if (this.#isOthers()) throw new ConfigError([`${option}: another server has just taken ${path}.`]);
    this.#server?.close();
    this.#server = undefined;
    await this.#bind();
  }

  #isOthers(): boolean {
    const file = fileAt(this.#options.path);
    return file !== undefined && file !== this.#file;
  }

  #say(problem: string | undefined): void {
    if (problem === this.#problem || this.#closed) return;
    this.#problem = problem;
    const { log, path } = this.#options;
    if (problem === undefined) log.info({ path }, "callers reach the unix socket again");
    else log.error({ path, reason: problem }, "callers do not reach the unix socket");
  }
}

/**
 * What stands at a path: a file's own number, which no other file gets while a server listens on it. Where the folder lets
 * nobody look, the error's code, which is nobody's file.
 */
function fileAt(path: string): string | undefined {
  try {
    const { dev, ino } = lstatSync(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENOTDIR" ? undefined : code;
  }
}
