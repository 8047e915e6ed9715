import { constants, fstatSync, openSync } from "node:fs";
import { isatty } from "node:tty";

const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;

/**
 * A descriptor of stdout or stderr on which no write waits for a reader: it fails with EAGAIN instead.
 *
 * Pipes and terminals are opened once more, because `O_NONBLOCK` belongs to the open file, which other processes may
 * hold, too. Sockets cannot be opened: Node.js makes them non-blocking when it creates its own stream. Files never
 * wait, and a second open file would begin at their start.
 */
export function openWithoutWaiting(fd: 1 | 2): number {
  const stats = fstatSync(fd);
  if (!stats.isFIFO() && !stats.isSocket() && !isatty(fd)) return fd;
  try {
    return openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  } catch {
    void (fd === 1 ? process.stdout : process.stderr);
    return fd;
  }
}
