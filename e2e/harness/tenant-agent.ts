import { randomUUID } from "node:crypto";
import { PlayedAgent } from "../../server/testing/played-agent.ts";
import { dialCarrier } from "../../shared/link/dial.ts";
import type { Link } from "../../shared/link/link.ts";
import { HANDSHAKE_VERSION, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { ClusterFiles } from "./cluster-files.ts";

export interface TenantAgentOptions {
  readonly agentId?: string;
  /** Changes what the link says, before its session begins. */
  readonly onLink?: (link: Link) => void;
  /**
   * The agent's reaction to each stream; by default its CONNECT is answered 200, and the test writes and reads freely.
   */
  readonly onStream?: (stream: Stream) => void;
}

/** An agent of a cluster that the test plays, with the cluster's own certificate. */
export async function tenantAgent(
  cluster: ClusterFiles,
  port: number,
  {
    agentId = "scripted",
    onLink,
    onStream = (stream) => void answered(stream).catch(() => {}),
  }: TenantAgentOptions = {},
): Promise<PlayedAgent> {
  const dialled = await dialCarrier({
    host: cluster.sni,
    port,
    address: { host: "127.0.0.1", port },
    path: TUNNEL_PATH,
    tls: { ca: cluster.ca, ...(await cluster.agentPair) },
    hello: () => ({ type: "hello", version: HANDSHAKE_VERSION, agentId, instance: randomUUID(), software: "test" }),
    keepaliveMs: 20_000,
    timeoutMs: 5_000,
  });
  return new PlayedAgent(dialled, onStream, onLink);
}

/** Makes an agent acknowledge nothing that it is sent. */
export function withoutAcks(link: Link): void {
  const say = link.sendControl.bind(link);
  link.sendControl = (message) => (message.type === "ack" ? undefined : say(message));
}

/** Takes the stream and says that its target is there. */
export async function answered(stream: Stream): Promise<void> {
  stream.accept();
  await readOpen(stream, 5_000);
  stream.write(encodeAnswer({ ok: true }));
}
