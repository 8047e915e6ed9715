import { readBoundedSync } from "../read-bounded.ts";
import { readFailure } from "./read-failure.ts";
import { RevocationList } from "./revocation-list.ts";
import { type FileWatch, type WatchFilesOptions, watchFiles } from "./watch-files.ts";

/** What is in a file of CRLs; another object whenever the content is another. */
export interface CrlFile {
  readonly pem: string;
  readonly lists: readonly RevocationList[];
}

/** What is wrong with such a file, as a sentence that has its path. */
export class CrlFileError extends Error {
  override readonly name = "CrlFileError";
}

/** Throws a `CrlFileError`. The largest file (4 MiB, 85,000 entries) takes 0.15 s of the event loop. */
export function loadCrls(path: string): CrlFile {
  const refuse = (why: string, cause?: unknown) => new CrlFileError(`the CRL file ${path} ${why}`, { cause });
  let pem: string;
  try {
    pem = readBoundedSync(path).toString("utf8");
  } catch (error) {
    throw refuse(`cannot be read: ${readFailure(error)}`, error);
  }
  const blocks = pem.match(/-----BEGIN X509 CRL-----[^-]+-----END X509 CRL-----/g) ?? [];
  const begun = pem.split("-----BEGIN X509 CRL-----").length - 1;
  if (begun === 0) throw refuse("holds no PEM CRL (-----BEGIN X509 CRL-----)");
  if (blocks.length < begun) throw refuse("holds a damaged CRL");
  const lists = blocks.map((block, index) => {
    try {
      return new RevocationList(Buffer.from(block.replace(/-----[^-]+-----/g, ""), "base64"));
    } catch (error) {
      throw refuse(`is not usable: CRL ${index + 1} in it ${(error as Error).message}`, error);
    }
  });
  return { pem, lists };
}

export interface WatchedCrlOptions {
  readonly log: { info(fields: object, message: string): void; error(fields: object, message: string): void };
  /** Other CRLs are in use from now on: who came before was verified by the old. */
  onRenewed(): void;
  readonly watch?: WatchFilesOptions;
}

/** A file of CRLs as it is now; a broken new one keeps the old one in use. */
export class WatchedCrl {
  readonly path: string;
  readonly #options: WatchedCrlOptions;
  readonly #watch: FileWatch;
  #file: CrlFile;
  #problem: string | undefined;

  /** Throws a `CrlFileError`. */
  constructor(path: string, options: WatchedCrlOptions) {
    this.path = path;
    this.#options = options;
    this.#watch = watchFiles([path], this.#onChanged, options.watch); // before the first read: nothing falls between
    try {
      this.#file = loadCrls(path);
    } catch (error) {
      this.#watch.close();
      throw error;
    }
  }

  get file(): CrlFile {
    return this.#file;
  }

  /** Why the file as it is now is not in use, if it is not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  close(): void {
    this.#watch.close();
  }

  readonly #onChanged = (): void => {
    const { log, onRenewed } = this.#options;
    const { path: file } = this;
    try {
      this.#file = loadCrls(file);
    } catch (error) {
      this.#problem = (error as Error).message;
      log.error({ file, reason: this.#problem }, "a new CRL file is not usable, the old one stays");
      return;
    }
    this.#problem = undefined;
    log.info({ file, crls: this.#file.lists.length }, "CRLs were read again");
    onRenewed();
  };
}
