import { WatchedFiles, type WatchedFilesOptions } from "../documents/watched-files.ts";
import { loadServerTls, type ServerTls, TlsFileError, type TlsFiles } from "./tls-material.ts";

/** Certificate, key and CA of a listener. */
export class WatchedTls extends WatchedFiles<ServerTls> {
  /** Throws a `TlsFileError`. */
  constructor(files: TlsFiles, options: WatchedFilesOptions<ServerTls>) {
    const { certFile, keyFile, caFile } = files;
    super(
      {
        paths: caFile === "" ? [certFile, keyFile] : [certFile, keyFile, caFile],
        load: () => loadServerTls(files),
        renewed: "certificates were read again",
        unusable: "new certificates are not usable, the old ones stay",
        fileAtFault: (error) => (error instanceof TlsFileError ? files[error.file] : undefined),
        fields: ({ notAfter }) => ({ notAfter }),
      },
      options,
    );
  }
}
