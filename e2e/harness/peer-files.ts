import { writeFileSync } from "node:fs";
import type { Authority } from "../../shared/pki/certificates.ts";
import { issuingAuthority } from "../../shared/pki/testing/chains.ts";
import type { TempDir } from "./temp.ts";

interface PeerPlace {
  readonly peerPort: number;
  /** Where others reach that port, if it is not the port itself: a relay's. */
  readonly reachedAt?: number;
}

/** The CA by which servers of a fleet know each other, in a folder. */
export class PeerFiles {
  readonly #dir: TempDir;
  readonly #authority: Authority;

  private constructor(dir: TempDir, authority: Authority) {
    this.#dir = dir;
    this.#authority = authority;
  }

  static async create(dir: TempDir): Promise<PeerFiles> {
    return new PeerFiles(dir, await issuingAuthority("CA of servers"));
  }

  /** The options of a server by which it is one of the fleet, with these NATS servers as its directory. */
  async flagsOf(serverId: string, { peerPort, reachedAt = peerPort }: PeerPlace, nats: readonly string[]) {
    return {
      ...{ directory: nats.join(","), peerPort, peerBindAddress: "127.0.0.1", peerAddress: `127.0.0.1:${reachedAt}` },
      ...{ ...(await this.certificatesOf(serverId)), peerIdentities: "O=culvert-servers" },
    };
  }

  /** The options that name the files of a server's new certificate. */
  async certificatesOf(serverId: string) {
    const { cert, key } = await this.#authority.issue({ cn: serverId, o: ["culvert-servers"], usage: "both" });
    return {
      ...{ peerCert: this.#written(`${serverId}.peer.crt`, cert), peerKey: this.#written(`${serverId}.peer.key`, key) },
      peerCaCert: this.#written("peers.crt", this.#authority.cert),
    };
  }

  #written(name: string, text: string): string {
    writeFileSync(this.#dir.file(name), text);
    return this.#dir.file(name);
  }
}
