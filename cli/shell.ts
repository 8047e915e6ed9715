import { basename } from "node:path";

/** A path as a shell reads it back, for lines that are made to be pasted. */
export function shellQuoted(path: string): string {
  return /^[A-Za-z0-9_./+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** How this program was called, for lines that are made to be pasted: installed it is `culvert`, in a clone a path for Node. */
export function ownCommand(script = process.argv[1] ?? ""): string {
  return basename(script).startsWith("main.") ? `node ${shellQuoted(script)}` : "culvert";
}
