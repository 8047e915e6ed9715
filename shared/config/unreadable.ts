import { accessSync, constants, statSync } from "node:fs";

/** Why a file cannot be read, or `undefined`. */
export function unreadable(path: string): string | undefined {
  try {
    accessSync(path, constants.R_OK);
    return statSync(path).isDirectory() ? `${path} is a directory, not a file` : undefined;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT") return `${path} does not exist`;
    return code === "EACCES" ? `${path} is not readable for this user` : `cannot read ${path} (${code})`;
  }
}
