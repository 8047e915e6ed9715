import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { PlayedAgent, type TakesStream } from "../../server/testing/played-agent.ts";
import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { HANDSHAKE_VERSION, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { agentFiles } from "./pki-files.ts";
import type { World } from "./world.ts";

/** The parts of a world that an agent uses, with any targets. */
export type AgentsWorld = Pick<World, "dir" | "pki" | "server">;

export interface ScriptedAgentOptions {
  readonly agentId?: string;
  readonly instance?: string;
  readonly cluster?: string;
  readonly identifiers?: AgentIdentifiers;
  readonly path?: string;
  /** By default the world's agent certificate; `undefined` given: none at all. */
  readonly certificate?: CertificateAndKey | undefined;
  /** The agent's reaction to each stream, before ACK and head; by default the stream is accepted and echoes. */
  readonly onStream?: TakesStream;
}

/** The world's agent certificate and key, PEM. */
export function agentCertificate(world: AgentsWorld): CertificateAndKey {
  const { agentCert, agentKey } = agentFiles(world.dir.path);
  return { cert: readFileSync(agentCert, "utf8"), key: readFileSync(agentKey, "utf8") };
}

/** Dials the world's server as an agent; rejects with `LinkRefused` when it says no. */
export async function scriptedAgent(world: AgentsWorld, options: ScriptedAgentOptions = {}): Promise<PlayedAgent> {
  const { agentId = "scripted", instance = randomUUID(), path = TUNNEL_PATH, onStream = echo } = options;
  const { cluster, identifiers } = options;
  const certificate = "certificate" in options ? options.certificate : agentCertificate(world);
  const dialled = await dialCarrier({
    host: "127.0.0.1",
    port: world.server.addresses.agents?.port ?? 0,
    path,
    tls: { ca: world.pki.clusterAuthority.cert, ...certificate },
    hello: () => ({
      type: "hello",
      version: HANDSHAKE_VERSION,
      agentId,
      instance,
      software: "scripted",
      ...(cluster === undefined ? {} : { cluster }),
      ...(identifiers && { identifiers }),
    }),
    keepaliveMs: 20_000,
    timeoutMs: 5_000,
  });
  return new PlayedAgent(dialled, onStream);
}

/** Takes the stream, reads what is asked for, and answers with these bytes. */
export function answering(bytes: Buffer): (stream: Stream) => void {
  return (stream) => {
    stream.accept();
    void readOpen(stream, 5_000).then(
      () => {
        stream.resume();
        stream.end(bytes);
      },
      () => {},
    );
  };
}

/** A head on the wire with any JSON, or none, in it. */
export function rawHead(json: string | Buffer, claimedLength?: number): Buffer {
  const body = Buffer.from(json);
  const length = Buffer.alloc(2);
  length.writeUInt16BE(claimedLength ?? body.length);
  return Buffer.concat([length, body]);
}

export function echo(stream: Stream): void {
  stream.accept();
  void readOpen(stream, 5_000).then(
    () => {
      stream.write(encodeAnswer({ ok: true }));
      stream.pipe(stream);
    },
    () => {},
  );
}
