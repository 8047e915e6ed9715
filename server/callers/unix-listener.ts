import { lstatSync } from "node:fs";
import { chmod, lstat, unlink } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { ConfigError } from "../../shared/config/options.ts";
import { readFailure } from "../../shared/documents/read-bounded.ts";
import { descriptorShortage } from "../../shared/limits/descriptor-shortage.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ServerContext } from "../tunnels/context.ts";

interface UnixSocket {
  readonly path: string;
  /** The flag, or the document and its key, that names the path: errors begin with it. */
  readonly option: string;
  onSocket(socket: Socket): void;
  /** How often the file is checked, ms. */
  readonly checkMs?: number;
}

const CHECK_MS = 1_000;
/** An owner of the socket that has not answered within this time is taken for alive, ms. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * A unix socket for callers.
 *
 * Its file may be removed or replaced while the server runs: by a cleaner of /tmp, with its folder, or by another
 * server. The kernel reports none of it, and callers would not reach the server. So the file is checked regularly, and
 * `state` says what is wrong. The server does not listen again: only a restart does.
 */
export class UnixListener {
  readonly #socket: UnixSocket;
  readonly #context: ServerContext;
  #server: Server | undefined;
  /** Identifies the socket file of this listener. */
  #file: string | undefined;
  #problem: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #opening: Promise<void> | undefined;
  #closed = false;

  constructor(socket: UnixSocket, context: ServerContext) {
    this.#socket = socket;
    this.#context = context;
  }

  /**
   * Listens on the path. Rejects with a `ConfigError` if that is not possible now; it is tried again at each check
   * until it succeeds or the listener is closed.
   */
  async open(): Promise<void> {
    this.#opening = this.#listen();
    try {
      await this.#opening;
    } catch (error) {
      this.#problem = (error as Error).message; // the caller logs it
      throw error;
    } finally {
      this.#opening = undefined;
      this.#checkLater();
    }
  }

  /** Whether callers reach the socket, and if not, why. */
  get state(): { readonly up: boolean; readonly problem: string | undefined } {
    const up = this.#server !== undefined && this.#problem === undefined && !this.#closed;
    return { up, problem: this.#problem };
  }

  /** Stops listening and removes its own file. Resolves when the accepted connections have ended, too. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#opening?.catch(() => {});
    const server = this.#server;
    if (server === undefined) return;
    const file = fileAt(this.#socket.path);
    if (file !== undefined && file !== this.#file) {
      // libuv would remove the file that has replaced ours. The end of the process closes the server.
      server.unref();
      return;
    }
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }

  async #listen(): Promise<void> {
    await clearPath(this.#socket, this.#context);
    if (this.#closed) return;
    this.#server = await bindUnix(this.#socket, this.#context);
    this.#file = fileAt(this.#socket.path);
  }

  #checkLater(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.#check(), this.#socket.checkMs ?? CHECK_MS).unref();
  }

  async #check(): Promise<void> {
    const { path, option } = this.#socket;
    if (this.#server === undefined) {
      await this.open().then(
        () => this.#report(undefined),
        () => {}, // the problem is logged already
      );
      return;
    }
    const isOurs = this.#file !== undefined && fileAt(path) === this.#file;
    const sentence = `${option}: ${path} was removed or replaced while this server listened on it: restart the server`;
    this.#report(isOurs ? undefined : sentence);
    this.#checkLater();
  }

  #report(problem: string | undefined): void {
    const { path } = this.#socket;
    const { log } = this.#context;
    if (this.#closed || problem === this.#problem) return;
    this.#problem = problem;
    if (problem === undefined) log.info({ path }, "callers reach the unix socket");
    else log.error({ path, reason: problem }, "callers do not reach the unix socket");
  }
}

/**
 * Identifies the file at a path: no other file gets its inode while a server listens on it. If the folder is not
 * accessible, the error's code, which is no file's.
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

/** Resolves when no file is at the path any more; rejects with a `ConfigError` if it cannot be removed or is in use. */
async function clearPath({ path, option }: UnixSocket, { options }: ServerContext): Promise<void> {
  const file = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
    throw new ConfigError([`${option}: ${path} cannot be looked at: ${readFailure(error)}. Name another path.`], {
      cause: error,
    });
  });
  if (file === undefined) return;
  if (!file.isSocket()) throw new ConfigError([`${option}: ${path} exists and is not a socket. Name another path.`]);
  const answered = await isAnswered(path).catch((error: Error) => {
    throw new ConfigError([`${option}: whether a server listens on ${path} cannot be seen: ${readFailure(error)}.`], {
      cause: error,
    });
  });
  if (answered) {
    throw new ConfigError([`${option}: another server listens on ${path}. Stop it, or name another path.`]);
  }
  if (!options.deleteExistingUdsFile) {
    throw new ConfigError([
      `${option}: ${path} is left over from a server that has ended. Remove it, or give --delete-existing-uds-file.`,
    ]);
  }
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return;
    throw new ConfigError([`${option}: the stale socket ${path} cannot be removed: ${error.message}.`]);
  });
}

/**
 * Whether a server listens on the socket. Only a refusal says no: a live owner may have a full backlog (EAGAIN), or be
 * silent. Rejects if no file descriptor is left.
 */
function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const probe = connect(path);
    const answer = (alive: boolean) => {
      probe.destroy();
      resolve(alive);
    };
    probe.setTimeout(PROBE_TIMEOUT_MS, () => answer(true));
    probe.on("connect", () => answer(true));
    probe.on("error", (error: NodeJS.ErrnoException) => {
      if (descriptorShortage(error)) reject(error);
      else answer(!["ECONNREFUSED", "ENOENT"].includes(error.code ?? ""));
    });
  });
}

async function bindUnix({ path, option, onSocket }: UnixSocket, { options }: ServerContext): Promise<Server> {
  // Half-open: a caller that has sent everything still wants the answer.
  const server = createServer({ allowHalfOpen: true }, onSocket);
  await listenWithMode(server, path, option, options);
  try {
    await chmod(path, options.udsMode); // a folder's default ACL overrides the umask
  } catch (error) {
    server.close();
    throw new ConfigError([`${option}: ${path} cannot have its mode: ${(error as Error).message}.`]);
  }
  return server;
}

function listenWithMode(server: Server, path: string, option: string, options: ServerOptions): Promise<void> {
  const { udsMode: mode, listenBacklog: backlog } = options;
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const cause = LISTEN_FAILURES[error.code ?? ""] ?? error.message;
      reject(new ConfigError([`${option}: cannot listen on ${path}: ${cause}.`], { cause: error }));
    });
    // Node binds inside `listen`: there is no moment in which the file has wider permissions than asked for.
    const before = process.umask(0o777 & ~mode);
    try {
      server.listen({ path, backlog }, () => {
        server.removeAllListeners("error");
        server.on("error", () => {}); // accept(2) without a descriptor: the connection stays in the backlog
        resolve();
      });
    } finally {
      process.umask(before);
    }
  });
}

const LISTEN_FAILURES: Readonly<Record<string, string>> = {
  EADDRINUSE: "another server has just taken it",
  // libuv reports EACCES for a folder that does not exist, too (uv_pipe_bind); Bun says which it is.
  ENOENT: "its folder does not exist",
  EACCES: "its folder does not exist, or this user may not write in it",
  ENOTDIR: "its folder is a file",
  EROFS: "its file system is read-only",
};
