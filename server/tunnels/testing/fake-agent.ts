import { duplexPair } from "node:stream";
import { Cancellation } from "../../../shared/basics/promises.ts";
import type { ControlMessage } from "../../../shared/link/control.ts";
import { CarrierLost, type LinkWatcher } from "../../../shared/link/link-events.ts";
import { encodeAnswer, type OpenAnswer, type OpenRequest, readOpen } from "../../../shared/wire/stream-head.ts";
import type { SessionOptions } from "../../../shared/yamux/bounds.ts";
import { Session } from "../../../shared/yamux/session.ts";
import type { Stream } from "../../../shared/yamux/stream.ts";
import { DuplexTransport } from "../../../shared/yamux/testing/duplex-transport.ts";
import { AgentStreams } from "../agent-streams.ts";
import type { ConnectedAgent, OpenOptions } from "../tunnel.ts";
import { YamuxTunnel } from "../yamux-tunnel.ts";
import { contextWithCluster } from "./context.ts";

/** For tests: a tunnel over a pair in memory, with an agent at its other end that does what the test says. */
export interface FakeAgent {
  readonly tunnel: YamuxTunnel;
  readonly link: { suspend(): void; resume(): void; readonly probes: number };
  /** The agent's end of the session. */
  readonly session: Session;
  /** Control messages that the server sent. */
  readonly control: ControlMessage[];
  /** Streams that arrived, answered or not. */
  readonly streams: Stream[];
  /** Sends a control message of the agent to the server. */
  say(message: ControlMessage): void;
  /** Cuts the pipe below the session, without a word; `reason`: what the server's end of it says. */
  cut(reason?: Error): void;
}

export interface FakeAgentOptions extends Partial<ConnectedAgent> {
  /** Bytes and streams as they come, before ACK; by default the head is read and `answer` sent. */
  readonly onStream?: (stream: Stream) => void;
  readonly answer?: (request: OpenRequest) => OpenAnswer | Promise<OpenAnswer>;
  /** The target's reaction once it is connected. */
  readonly onTarget?: (stream: Stream, request: OpenRequest) => void;
  /** The session runs on something over the link. */
  readonly innerTls?: boolean;
  /** Bounds of the server's end. */
  readonly bounds?: Partial<SessionOptions>;
}

class LinkOverPair extends DuplexTransport {
  readonly id = "srv/1";
  readonly remote = "127.0.0.1:5555";
  readonly unacknowledged = 0;
  lastByteAt = 0;
  readonly pace = { roundMs: undefined, sentPerSecond: undefined, receivedPerSecond: undefined };
  readonly control: ControlMessage[] = [];
  suspended = false;
  probes = 0;
  watcher: LinkWatcher = {};

  watch(watcher: LinkWatcher): void {
    this.watcher = watcher;
  }

  probe(): void {
    this.probes++;
  }

  /** It has lost its carrier. */
  suspend(): void {
    this.suspended = true;
    this.watcher.onSuspended?.(new CarrierLost("cut", { lossCause: "reset", ageMs: 1, idleMs: 1 }));
  }

  /** It has a carrier again. */
  resume(): void {
    this.suspended = false;
    this.watcher.onResumed?.({ suspendedMs: 1, lost: undefined, replayedBytes: 0 });
  }

  override destroy(reason?: Error): void {
    super.destroy(reason);
    this.watcher.onClosed?.();
  }

  sendControl(message: ControlMessage): void {
    this.control.push(message);
  }
}

export function fakeAgent(options: FakeAgentOptions = {}): FakeAgent {
  const [near, far] = duplexPair();
  const streams: Stream[] = [];
  const onStream = options.onStream ?? ((stream: Stream) => void serve(stream, options));
  const session = new Session("client", new DuplexTransport(far), {
    onStream: (stream) => {
      stream.on("error", () => {});
      streams.push(stream);
      onStream(stream);
    },
    onClosed: () => {},
  });
  const link = new LinkOverPair(near);
  const { agentId = "a", instance = "1", identity = "CN=agent", software = "test", probe = false } = options;
  const { identifiers = {} } = options;
  const agent: ConnectedAgent = { agentId, instance, identity, peer: undefined, software, probe, identifiers };
  const pipe = options.innerTls === true ? new DuplexTransport(near) : link;
  return {
    tunnel: new YamuxTunnel(agent, link, {}, options.bounds ?? {}, pipe, noStreams(agent)),
    link,
    session,
    control: link.control,
    streams,
    say: (message) => link.watcher.onControl?.(message),
    cut: (reason) => {
      near.destroy(reason);
      far.destroy();
    },
  };
}

/** A stream that is asked of one agent alone, and for which there is time. */
export function openOptions(more: Partial<OpenOptions> = {}): OpenOptions {
  return {
    ...{ id: "1", deadline: performance.now() + 600_000, dialTimeoutMs: 1_000, ackTimeoutMs: 1_000 },
    ...{ cancellation: new Cancellation(), hasAlternative: () => false, whenAvailable: () => new Promise(() => {}) },
    ...more,
  };
}

/** An agent that may open no streams. */
function noStreams(agent: ConnectedAgent): AgentStreams {
  const { context, cluster } = contextWithCluster();
  return new AgentStreams(new Set(), [], { agent, cluster, link: { remote: "" } }, context);
}

async function serve(stream: Stream, { answer, onTarget }: FakeAgentOptions): Promise<void> {
  stream.accept();
  const request = await readOpen(stream, 1_000);
  const said = await (answer?.(request) ?? { ok: true, address: "10.0.0.1:1" });
  if (stream.destroyed) return;
  stream.write(encodeAnswer(said));
  if (said.ok) onTarget?.(stream, request);
  else stream.end();
}
