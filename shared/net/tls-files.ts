import { loadServerTls, type ServerTls, type TlsFiles } from "./tls-material.ts";
import { type FileWatch, type WatchFilesOptions, watchFiles } from "./watch-files.ts";

export interface TlsFilesLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface WatchedTlsOptions {
  readonly log: TlsFilesLog;
  /** Other material is in use from now on: who came before was judged by the old. */
  onRenewed?(material: ServerTls, before: ServerTls): void;
  readonly watch?: WatchFilesOptions;
}

/** Certificate, key and CA of a listener as its files hold them now; broken new files keep the old ones in use. */
export class WatchedTls {
  readonly #files: TlsFiles;
  readonly #options: WatchedTlsOptions;
  readonly #watch: FileWatch;
  #material: ServerTls;
  #problem: string | undefined;

  /** Throws a `TlsFileError`. */
  constructor(files: TlsFiles, options: WatchedTlsOptions) {
    this.#files = files;
    this.#options = options;
    const paths = [files.certFile, files.keyFile, files.caFile].filter((path) => path !== "");
    this.#watch = watchFiles(paths, this.#onChanged, options.watch); // before the first read: nothing falls between
    try {
      this.#material = loadServerTls(files);
    } catch (error) {
      this.#watch.close();
      throw error;
    }
  }

  /** Another object whenever the content is another. */
  get material(): ServerTls {
    return this.#material;
  }

  /** Why the files as they are now are not in use, if they are not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  close(): void {
    this.#watch.close();
  }

  readonly #onChanged = (): void => {
    const { log, onRenewed } = this.#options;
    const { certFile: file } = this.#files;
    const before = this.#material;
    try {
      this.#material = loadServerTls(this.#files);
    } catch (error) {
      this.#problem = error instanceof Error ? error.message : String(error);
      log.error({ file, reason: this.#problem }, "new certificates are not usable, the old ones stay");
      return;
    }
    this.#problem = undefined;
    log.info({ file, notAfter: this.#material.notAfter }, "certificates were read again");
    onRenewed?.(this.#material, before);
  };
}
