import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import type { QueueNode } from "../../shared/basics/collections.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { MAX_TIMER_MS, SharedInterval } from "../../shared/basics/timers.ts";
import type { ControlPacket } from "../../shared/konnectivity/packet.ts";
import { MalformedPackets, PacketReader } from "../../shared/konnectivity/packet-reader.ts";
import { PRESSURE } from "../../shared/limits/memory-account.ts";
import type { MemoryShare } from "../../shared/limits/memory-pool.ts";
import { type LinkPace, PeerViolation } from "../../shared/link/link-events.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { sessionLost, YamuxError } from "../../shared/yamux/errors.ts";
import { SessionMemory } from "../../shared/yamux/session-memory.ts";
import { CarrierRecord } from "../tunnels/carrier-record.ts";
import { DialRecord, sessionRefusal } from "../tunnels/opening.ts";
import type { ConnectedAgent, OpenOptions, Tunnel } from "../tunnels/tunnel.ts";
import type { AgentCall } from "./agent-call.ts";
import { AgentStream, type StreamTunnel } from "./agent-stream.ts";
import type { AgentWindow } from "./agent-window.ts";
import { Dial } from "./dial.ts";
import { PacketSender } from "./packet-sender.ts";
import { RoundTrips } from "./round-trips.ts";

/** Interval of looks whether the agent reads its packets, ms. */
const LOOK_MS = 500;
/** Packets that carry nothing, or belong to nothing: an honest agent sends one now and then. */
const USELESS_PACKETS = { burst: 10_000, perSecond: 1_000 };
/** A tunnel that is to be renewed at a moment without streams ends after this time at the latest, ms. */
const RENEWED_WITHIN_MS = 24 * 3_600_000;
/** Nothing is known of a line without acknowledgements. */
const NO_PACE: LinkPace = { roundMs: undefined, sentPerSecond: undefined, receivedPerSecond: undefined };

interface TunnelBounds {
  readonly maxStreams: number;
  /** Interval of pings, ms. */
  readonly keepaliveMs: number;
  /** Bytes that its streams may hold together. */
  readonly budget: number;
  readonly memory: MemoryShare;
}

/** A konnectivity-agent and its gRPC stream. It ends with the stream, and is never suspended. */
export class KonnectivityTunnel implements Tunnel, StreamTunnel {
  readonly protocol = "konnectivity";
  readonly id: string;
  readonly agent: ConnectedAgent;
  readonly remote: string;
  readonly connectedAt = new Date();
  readonly carriers = new CarrierRecord();
  readonly suspended = false;
  readonly replayBytes = 0;
  readonly pace = NO_PACE;
  lastUsed = 0;
  /** Resolves when the gRPC stream has ended, with an error unless it was closed cleanly. */
  readonly closedWith: Promise<Error | undefined>;
  readonly memory: SessionMemory;
  readonly #call: AgentCall;
  readonly #bounds: TunnelBounds;
  readonly #window: AgentWindow;
  readonly #sender: PacketSender;
  readonly #reader: PacketReader;
  readonly #roundTrips: RoundTrips;
  readonly #looks: QueueNode<() => void>;
  readonly #dials = new Map<bigint, Dial>();
  readonly #record = new DialRecord();
  readonly #useless = new TokenBucket(USELESS_PACKETS);
  /** By the agent's names for its connections; `undefined`: nobody here wants it, and the agent has to close it. */
  readonly #connections = new Map<bigint, AgentStream | undefined>();
  /** Streams that hold something, or may, also those that the agent has closed. */
  readonly #streams = new Set<AgentStream>();
  readonly #onLeaving: () => void;
  readonly #closed = deferred<Error | undefined>();
  #nextDial = 1n;
  /** Bytes that may still come in place of those that were freed when nothing more could be held. */
  #room = 0;
  #isLeaving = false;
  #isClosed = false;
  /** Present while the tunnel ends at the next moment without streams. */
  #ending: { readonly reason: string; readonly at: number; readonly timer: NodeJS.Timeout } | undefined;

  /** `onLeaving`: it takes no more streams. */
  constructor(
    agent: ConnectedAgent,
    id: string,
    remote: string,
    call: AgentCall,
    bounds: TunnelBounds,
    onLeaving: () => void,
  ) {
    this.agent = agent;
    this.id = id;
    this.remote = remote;
    this.closedWith = this.#closed.promise;
    this.memory = new SessionMemory(bounds.budget, bounds.memory, () => performance.now(), this.#streams);
    this.#call = call;
    this.#bounds = bounds;
    this.#onLeaving = onLeaving;
    this.#sender = new PacketSender(call.stream);
    this.#roundTrips = new RoundTrips(this.#sender, call);
    this.#looks = SharedInterval.every(LOOK_MS).add(() => this.#roundTrips.look());
    this.#reader = new PacketReader({ onData: this.#onData, onPacket: this.#onPacket });
    this.#window = call.read(this.#onChunk, bounds.keepaliveMs);
    void call.ended.then((cause) => this.#onEnded(cause));
  }

  // ── what is known of it ────────────────────────────────────────────────────────────────────────────────────────

  get streamCount(): number {
    return this.#dials.size + this.#connections.size;
  }

  get pendingOpens(): number {
    return this.#dials.size;
  }

  get bufferedBytes(): number {
    return this.memory.held;
  }

  get resetForMemory(): number {
    return this.memory.resets;
  }

  get rttMs(): number {
    return this.#roundTrips.leastMs;
  }

  get leaving(): boolean {
    return this.#isLeaving;
  }

  get draining(): boolean {
    return this.#isLeaving;
  }

  get closed(): boolean {
    return this.#isClosed;
  }

  /**
   * The agent reads no packets, because one of its targets does not: it has one loop for all. Nothing here can end
   * that.
   */
  get standsStill(): boolean {
    return this.#roundTrips.standsStill;
  }

  get dialsFail(): boolean {
    return this.standsStill || this.#record.rests;
  }

  onSilence(): void {
    this.#call.probe();
  }

  async roundTrip(): Promise<number | undefined> {
    if (this.#isClosed) return undefined;
    return await this.#roundTrips.measure();
  }

  // ── streams ────────────────────────────────────────────────────────────────────────────────────────────────────

  async open(target: Target, options: OpenOptions): Promise<Duplex> {
    const { cancellation } = options;
    if (cancellation.reason !== undefined) throw cancellation.reason;
    this.#requireRoom();
    const random = this.#nextDial++;
    const dial = new Dial(target, this, options);
    this.#dials.set(random, dial);
    this.#sender.control({
      case: "dialRequest",
      value: { protocol: "tcp", address: formatTarget(target), random },
    });
    try {
      const stream = await dial.promise;
      this.#record.succeeded();
      return stream;
    } catch (error) {
      this.#record.failed(error);
      throw error;
    } finally {
      // A late DIAL_RSP finds no dial, and is answered with CLOSE_REQ: agents read no DIAL_CLS.
      this.#dials.delete(random);
      this.#endIfIdle();
    }
  }

  #requireRoom(): void {
    const { agentId } = this.agent;
    const refuse = (reason: "overloaded" | "pool_full" | "go_away" | "closed") => {
      throw sessionRefusal(new YamuxError(reason, reason), agentId);
    };
    if (this.#isClosed) refuse("closed");
    if (this.#isLeaving) refuse("go_away");
    if (this.streamCount >= this.#bounds.maxStreams) refuse("overloaded");
    const { memory } = this.#bounds;
    if (memory.pressure >= PRESSURE.full) {
      memory.onRefused();
      refuse("pool_full");
    }
    if (!this.standsStill) return;
    const sentence = `agent "${agentId}" (konnectivity-agent) stands still: a target that it serves takes nothing more; other connections wait for it`;
    throw new CulvertError("agent_timeout", sentence);
  }

  send(connectID: bigint, bytes: Buffer, done: (error?: Error | null) => void): void {
    this.#sender.data(connectID, bytes, done);
  }

  requestClose(connectID: bigint): void {
    this.#sender.control({ case: "closeRequest", value: { connectID } });
  }

  forget(stream: AgentStream): void {
    this.#streams.delete(stream);
    this.memory.forget(stream);
    const { connectID } = stream;
    if (this.#connections.get(connectID) === stream) this.#connections.set(connectID, undefined);
  }

  // ── packets ────────────────────────────────────────────────────────────────────────────────────────────────────

  readonly #onChunk = (chunk: Buffer): void => {
    if (this.#isClosed) return;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      if (!(error instanceof MalformedPackets) && !(error instanceof PeerViolation)) throw error;
      this.destroy(error instanceof PeerViolation ? error : new PeerViolation(error.message));
    }
  };

  readonly #onData = (connectID: bigint, part: Buffer): void => {
    const stream = this.#connections.get(connectID);
    if (stream === undefined || part.length === 0) {
      // Bytes for a connection that is closing are on their way when CLOSE_REQ is sent.
      if (!this.#connections.has(connectID)) this.#onUnknown(connectID);
      else if (part.length === 0) this.#countUseless();
      return;
    }
    stream.onData(part);
    if (stream.held === 0) return;
    this.#makeRoom(part.length);
    this.#window.onLeft(stream, this.#bounds.budget);
  };

  /** No window bounds what slow readers make this server hold: the one that holds most is ended, even if it moves. */
  #makeRoom(bytes: number): void {
    const { memory } = this.#bounds;
    if (this.memory.isOverrun) this.memory.resetLargest();
    if (memory.pressure < PRESSURE.full) return;
    this.#room -= bytes;
    if (this.#room < 0) this.#room = memory.evictLargest();
  }

  #onUnknown(connectID: bigint): void {
    this.#countUseless();
    this.requestClose(connectID);
  }

  #countUseless(): void {
    if (this.#useless.take(1) > 0) throw new PeerViolation("it sends too many packets that belong to no connection");
  }

  readonly #onPacket = (packet: ControlPacket): void => {
    switch (packet.case) {
      case "dialResponse":
        this.#onDialResponse(packet.value);
        return;
      case "closeResponse":
        this.#onCloseResponse(packet.value);
        return;
      case "closeDial":
        this.#dials.get(packet.value.random)?.onError("");
        return;
      case "drain":
        this.#leave();
        return;
      default: // agents send nothing else, and a newer one may
        this.#countUseless();
    }
  };

  #onDialResponse({ random, connectID, error }: { random: bigint; connectID: bigint; error: string }): void {
    const dial = this.#dials.get(random);
    if (dial === undefined) this.#countUseless();
    if (error !== "" || connectID === 0n) {
      dial?.onError(error);
      return;
    }
    if (this.#connections.has(connectID)) throw new PeerViolation(`it has given the connection ID ${connectID} twice`);
    if (this.#connections.size > 2 * this.#bounds.maxStreams) {
      throw new PeerViolation("it does not close the connections that it was asked to close");
    }
    this.#connections.set(connectID, undefined);
    const connect = (): AgentStream => {
      const stream = new AgentStream(connectID, this);
      this.#connections.set(connectID, stream);
      this.#streams.add(stream);
      this.#bounds.memory.enter(stream.charged);
      return stream;
    };
    if (dial?.onConnected(connect) !== true) this.requestClose(connectID);
  }

  #onCloseResponse({ connectID, error }: { connectID: bigint; error: string }): void {
    if (this.#roundTrips.onClosed(connectID)) return;
    if (!this.#connections.has(connectID)) {
      this.#countUseless();
      return;
    }
    const stream = this.#connections.get(connectID);
    this.#connections.delete(connectID);
    stream?.onClosed(error);
    this.#endIfIdle();
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  /** The agent cannot be asked for a new connection: it makes one when this one ends, which is when nothing is open. */
  rotate(reason: string): void {
    this.#endWhenIdle(reason, RENEWED_WITHIN_MS);
  }

  requireProof(reason: string, withinMs: number): void {
    this.#endWhenIdle(reason, withinMs);
  }

  /** Open streams go on: GOAWAY would end them all, because the agent closes a connection that has got one. */
  drain(): void {
    this.#leave();
    this.#endWhenIdle("this server is shutting down", MAX_TIMER_MS);
  }

  async close(deadlineMs: number): Promise<void> {
    this.#leave();
    this.#endWhenIdle("the server has closed the tunnel", deadlineMs);
    await this.closedWith;
  }

  #leave(): void {
    if (this.#isLeaving || this.#isClosed) return;
    this.#isLeaving = true;
    this.#onLeaving();
  }

  /** An earlier deadline stays. */
  #endWhenIdle(reason: string, withinMs: number): void {
    if (this.#isClosed) return;
    const ms = Math.min(withinMs, MAX_TIMER_MS);
    const at = performance.now() + ms;
    if (this.#ending === undefined || at < this.#ending.at) {
      clearTimeout(this.#ending?.timer);
      this.#ending = { reason, at, timer: setTimeout(() => this.#end(reason), ms).unref() };
    }
    this.#endIfIdle();
  }

  #endIfIdle(): void {
    if (this.#ending !== undefined && this.streamCount === 0) this.#end(this.#ending.reason);
  }

  /** Ends the gRPC stream with a status that the agent logs. */
  #end(reason: string): void {
    this.#call.end("unavailable", reason);
    this.#onEnded(undefined);
  }

  destroy(reason: Error): void {
    this.#call.end("unavailable", reason.message);
    this.#onEnded(reason);
  }

  #onEnded(cause: Error | undefined): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#ending?.timer);
    this.#looks.leave();
    this.#roundTrips.stop();
    for (const dial of this.#dials.values()) dial.onLost(cause);
    const lost = sessionLost(cause);
    for (const stream of this.#connections.values()) stream?.onLost(lost);
    this.#connections.clear();
    this.memory.close();
    this.#closed.resolve(cause);
  }
}
