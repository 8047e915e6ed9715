import { mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import type { CallerListener } from "../../harness/caller.ts";
import type { ClusterFolder } from "../../harness/cluster-files.ts";

/**
 * The documents of a server of several that serve the same clusters. Sockets are named beside the documents, and a
 * socket belongs to one process: so each server has a folder, with links to files that all share.
 */
export class OwnDocuments {
  readonly path: string;

  constructor(folder: ClusterFolder, server: string) {
    this.path = join(folder.path, server);
    const shared = readdirSync(folder.path).filter((name) => /\.(yaml|pem|ca)$/.test(name));
    mkdirSync(this.path);
    for (const name of shared) symlinkSync(join("..", name), join(this.path, name));
  }

  /** The socket for callers of a cluster. A CONNECT there costs a fifth of one over TLS. */
  socketOf(cluster: string): CallerListener {
    return { path: join(this.path, `${cluster}.sock`) };
  }
}
