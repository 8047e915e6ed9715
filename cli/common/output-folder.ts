import { mkdir, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { ConfigError } from "../../shared/config/options.ts";

/** The folder of `--dir`. If it does not exist, it is made with its parents, accessible for this user only. */
export async function makeFolder(dir: string): Promise<string> {
  if (dir === "") throw new ConfigError("--dir needs the name of a folder");
  const path = resolve(dir);
  try {
    await makeWithParents(path);
  } catch (error) {
    throw cannotWrite(path, error);
  }
  return path;
}

/** Does not use `recursive: true`: Node never returns on a file system without new folders, such as /proc. */
async function makeWithParents(path: string): Promise<void> {
  if (await isFolder(path)) return;
  if (dirname(path) !== path) await makeWithParents(dirname(path));
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    // Another process may have made it in the meantime.
    if (!(await isFolder(path))) throw error;
  }
}

function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "this user may not write there",
  EPERM: "this user may not write there",
  EROFS: "the file system is read-only",
  EEXIST: "a file is in the way",
  ENOTDIR: "a file is in the way",
  ENOENT: "there is no such folder, and it cannot be made",
  ENOSPC: "no space is left",
  EDQUOT: "no space is left for this user",
  ENAMETOOLONG: "the path is too long",
};

/** Why nothing can be written into a folder, for the user. */
export function cannotWrite(dir: string, error: unknown): ConfigError {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return new ConfigError(`nothing can be written into ${dir}: ${REASONS[code] ?? message}`, { cause: error });
}
