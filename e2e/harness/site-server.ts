import type { Site } from "./binaries.ts";
import type { Flags } from "./pki-files.ts";
import type { ManagedProcess } from "./processes.ts";
import { freePort } from "./targets/absent.ts";

/**
 * A server beside the one that a `Site` describes: its name, its ports and its socket stay, and its processes come and
 * go.
 */
export class SiteServer {
  readonly agentPort: number;
  readonly healthPort: number;
  readonly uds: string;
  readonly #site: Site;
  readonly #flags: Flags;

  private constructor(site: Site, serverId: string, [agentPort = 0, healthPort = 0]: readonly number[], more: Flags) {
    this.#site = site;
    this.agentPort = agentPort;
    this.healthPort = healthPort;
    this.uds = site.dir.file(serverId);
    this.#flags = { serverId, udsName: this.uds, serverPort: 0, agentPort, healthPort, ...more };
  }

  /** A place where no process runs yet; callers reach it by its socket. */
  static async reserve(site: Site, serverId: string, more: Flags = {}): Promise<SiteServer> {
    return new SiteServer(site, serverId, await Promise.all([freePort(), freePort()]), more);
  }

  /** Resolves when the process is ready. */
  start(more: Flags = {}): Promise<ManagedProcess> {
    return this.#site.startServer({ ...this.#flags, ...more });
  }
}
