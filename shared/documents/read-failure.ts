/** Why a file could not be read, in words for whoever named it. */
export function readFailure(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return WORDS.get(code) ?? message;
}

const WORDS = new Map([
  ["ENOENT", "there is no such file"],
  ["EACCES", "permission denied"],
  ["EISDIR", "it is a directory"],
  ["ENXIO", "it is a pipe, a socket or a device, not a regular file"],
  ["EMFILE", "this process has no file descriptor left"],
  ["ENFILE", "this machine has no file descriptor left"],
]);
