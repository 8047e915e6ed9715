import { chmod, lstat, unlink } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { ConfigError } from "../../shared/config/options.ts";
import { readFailure } from "../../shared/documents/read-bounded.ts";
import { descriptorShortage } from "../../shared/limits/file-descriptors.ts";

export interface UnixSocketOptions {
  readonly path: string;
  /** Where the path is said, for whoever is to mend it: a flag, or a document and its key. */
  readonly option: string;
  /** Permission bits: whoever may write to the socket is a caller. */
  readonly mode: number;
  /** Remove a socket file that no process listens on any more. */
  readonly deleteExisting: boolean;
  readonly backlog: number;
}

/** How long an owner of the socket may take to answer before we believe it to be there, ms. */
const PROBE_TIMEOUT_MS = 1_000;

/**
 * Listens on a path that `clearPath` has found free. libuv removes whatever stands at the path when the server closes,
 * be it another's by then: see `UnixListener`.
 */
export async function bindUnix(options: UnixSocketOptions, onSocket: (socket: Socket) => void): Promise<Server> {
  // Half-open: a caller's end of request is not its end of answer.
  const server = createServer({ allowHalfOpen: true }, onSocket);
  await bind(server, options);
  try {
    await chmod(options.path, options.mode); // a folder's default ACL overrules the umask
  } catch (error) {
    server.close();
    throw new ConfigError([`${options.option}: ${options.path} cannot have its mode: ${(error as Error).message}.`]);
  }
  return server;
}

/** Resolves when nothing stands at the path any more; rejects with the reason why it cannot be had. */
export async function clearPath({ path, option, deleteExisting }: UnixSocketOptions): Promise<void> {
  const file = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT" || error.code === "ENOTDIR") return undefined;
    throw new ConfigError([`${option}: ${path} cannot be looked at: ${error.message}.`], { cause: error });
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
  if (!deleteExisting) {
    throw new ConfigError([
      `${option}: ${path} is left over from a server that has ended. Remove it, or give --delete-existing-uds-file.`,
    ]);
  }
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return;
    throw new ConfigError([`${option}: the stale socket ${path} cannot be removed: ${error.message}.`]);
  });
}

/** Only a refusal says that nobody is there: a full backlog (EAGAIN) or silence are a live owner's. Rejects without a descriptor to ask with. */
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

function bind(server: Server, { path, option, mode, backlog }: UnixSocketOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(explained(error, path, option)));
    // Node binds inside `listen`: there is no moment in which the file has wider permissions than asked for.
    const before = process.umask(0o777 & ~mode);
    try {
      server.listen({ path, backlog }, () => {
        server.removeAllListeners("error");
        server.on("error", () => {}); // accept(2) out of descriptors: the connection stays in the backlog
        resolve();
      });
    } finally {
      process.umask(before);
    }
  });
}

const CURES: Readonly<Record<string, string>> = {
  EADDRINUSE: "another server has just taken it",
  // libuv says EACCES for a folder that is not there, too (uv_pipe_bind).
  EACCES: "its folder does not exist, or this user may not write in it",
  ENOTDIR: "its folder is a file",
  EROFS: "its file system is read-only",
};

function explained(error: NodeJS.ErrnoException, path: string, option: string): Error {
  const cure = CURES[error.code ?? ""] ?? error.message;
  return new ConfigError([`${option}: cannot listen on ${path}: ${cure}.`], { cause: error });
}
