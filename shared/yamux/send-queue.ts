import { Queue } from "../basics/queue.ts";
import { Flag, FrameType, HEADER_LENGTH, header } from "./frame.ts";
import type { SessionOptions } from "./options.ts";
import { Remnants } from "./remnants.ts";
import type { Stream } from "./stream.ts";
import type { Transport } from "./transport.ts";

/** A write of this size is worth a system call of its own; smaller ones, but for the first of a quiet turn, are gathered. */
const FLUSH_AT_ONCE = 16 * 1024;
/** So many bytes of control frames are not gathered any longer: thousands of streams opened in one turn. */
const FLUSH_CONTROL_AT = 64 * 1024;
/**
 * What is small is gathered while each turn of the loop brings more of it, and so long, ms, at most; not at all where the last
 * turn took as long. With many callers at a time a write for each turn is a write for each of them, and a read at the peer.
 */
const GATHER_MS = 0.5;
/** So long, ms, a credit that is not hurried waits for others: a write of 12 bytes costs as much as one of 10 KB. */
const CREDIT_WAIT_MS = 5;
/** With so much room on the path a turn is a whole message: nobody waits long for others', and two halves cost twice as much. */
const AMPLE_ROOM = 512 * 1024;
/**
 * On a slow path a turn is no longer than the room that is left, unless that is too little to be worth a frame: the next
 * stream's turn is a whole round trip away.
 */
const SHORT_TURN = 4 * 1024;
/**
 * Up to this share of `maxPending` more data is handed over. A batch that had to fit the last of it would be a short one, and
 * so would the next, in the room that it leaves when it is taken, and all that follow.
 */
const TURNS_UP_TO = 3 / 4;
const EMPTY = Buffer.alloc(0);

/**
 * Everything a session sends, in the order in which it deserves to go: control frames first, then streams in turn, one
 * frame a turn. What the transport has not taken stays under `maxPending` and one frame, so that a control frame never
 * stands behind more than that.
 */
export class SendQueue {
  readonly #transport: Transport;
  readonly #maxFramePayload: number;
  readonly #maxPending: number;
  readonly #maxPendingForTurns: number;
  readonly #now: () => number;
  readonly #ready = new Queue<Stream>();
  readonly #remnants: Remnants;
  #control: Buffer[] = [];
  #controlBytes = 0;
  #flushing = false;
  /** What is small is being gathered; the end of a turn looks at it. */
  #gathering = false;
  /** Buffers and streams that waited at the end of the turn before. */
  #gathered = 0;
  #gatheringSince = 0;
  /** The last turn that was looked at was a long one: on a busy loop nothing waits for another. */
  #isLoopBusy = false;
  #turnBegan = 0;
  /** In the last turn with data one stream had some, and nothing else waited: the next such stream waits for no others. */
  #lonely = false;
  /** A stream's data has not waited for the end of this turn. */
  #sentAtOnce = false;
  #creditTimer: NodeJS.Timeout | undefined;
  /** The last flush ended because the transport was full. */
  #blocked = false;
  #stopped = false;

  constructor(transport: Transport, options: Pick<SessionOptions, "maxFramePayload" | "maxPending" | "now">) {
    this.#transport = transport;
    this.#maxFramePayload = options.maxFramePayload;
    this.#maxPending = options.maxPending;
    this.#maxPendingForTurns = options.maxPending * TURNS_UP_TO;
    this.#now = options.now;
    this.#remnants = new Remnants((stream) => this.ready(stream));
  }

  /** Bytes of control frames that wait; they pile up only when the transport takes nothing. */
  get controlBytes(): number {
    return this.#controlBytes;
  }

  /** Buffers in them: the measure of answers, because heads of opened streams are bytes of our own. */
  get controlFrames(): number {
    return this.#control.length;
  }

  /** A frame that goes before all data. `payload` belongs to it and is small. */
  control(type: FrameType, flags: number, streamId: number, length: number, payload?: Buffer): void {
    if (this.#stopped) return;
    this.#add(header(type, flags, streamId, length));
    if (payload !== undefined) this.#add(payload);
    if (this.#controlBytes >= FLUSH_CONTROL_AT) this.flush();
    else this.#gather();
  }

  /** A window update; `unhurried`: it goes with whatever is sent next, or alone a little later. */
  credit(streamId: number, delta: number, unhurried: boolean): void {
    if (!unhurried || this.#controlBytes >= FLUSH_CONTROL_AT) {
      this.control(FrameType.windowUpdate, Flag.none, streamId, delta);
    } else if (!this.#stopped) {
      this.#add(header(FrameType.windowUpdate, Flag.none, streamId, delta));
      this.#creditTimer ??= setTimeout(this.#onCreditWaited, CREDIT_WAIT_MS).unref();
    }
  }

  #add(buffer: Buffer): void {
    this.#control.push(buffer);
    this.#controlBytes += buffer.length;
  }

  /** `stream` wants turns. */
  ready(stream: Stream): void {
    if (this.#stopped || !stream.sendable) return;
    this.#ready.join(stream.turn);
    if (stream.writableLength >= FLUSH_AT_ONCE) this.flush();
    else if (this.#lonely && !this.#gathering) this.#sendAtOnce();
    else this.#gather();
  }

  #sendAtOnce(): void {
    this.#gather(); // for those that follow in this turn
    this.#sentAtOnce = true;
    this.flush();
  }

  remove(stream: Stream): void {
    this.#ready.leave(stream.turn);
  }

  /** Sends the control frames that wait, whatever the transport holds already, and then nothing any more. */
  end(): void {
    if (this.#stopped) return;
    this.flush();
    if (this.#controlBytes > 0) this.#transport.write(this.#control, this.#controlBytes);
    this.stop();
  }

  /** Nothing is sent any more. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#creditTimer);
    this.#ready.clear();
    this.#remnants.stop();
    this.#control = [];
    this.#controlBytes = 0;
  }

  /** There is room again: what stood still goes on; what did not is sent with the rest of this turn. */
  onWritable(): void {
    if (this.#blocked) this.flush();
  }

  /** Sends as much as the transport has room for. A writer that is let go may come back while this runs. */
  flush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    while (!this.#stopped) {
      const pathRoom = this.#transport.room();
      const room = Math.min(this.#maxPending - this.#transport.pendingBytes, pathRoom);
      this.#blocked = room <= 0;
      if (this.#blocked) break;
      const batch = this.#control;
      let bytes = this.#controlBytes;
      this.#control = [];
      this.#controlBytes = 0;
      if (this.#transport.pendingBytes > this.#maxPendingForTurns) this.#blocked = this.#ready.size > 0;
      else bytes = this.#takeTurns(batch, bytes, room, pathRoom);
      if (bytes === 0 || this.#stopped) break;
      this.#transport.write(batch, bytes);
    }
    this.#flushing = false;
  }

  /** `before`: bytes of control frames in `batch`. Returns how many it holds then. */
  #takeTurns(batch: Buffer[], before: number, room: number, pathRoom: number): number {
    let bytes = before;
    while (bytes < room && this.#ready.first !== undefined) {
      const stream = this.#ready.first.member;
      this.#ready.leave(stream.turn);
      const at = batch.push(EMPTY) - 1;
      const left = pathRoom - bytes;
      const isWhole = this.#ready.size === 0 || left >= AMPLE_ROOM;
      const turn = isWhole ? this.#maxFramePayload : Math.ceil(this.#maxFramePayload / 2);
      const most = Math.min(turn, Math.max(left, SHORT_TURN));
      const whole = this.#transport.wholeRecords(bytes + HEADER_LENGTH, most);
      const length = stream.takePayload(whole < SHORT_TURN ? most : whole, batch);
      batch[at] = header(FrameType.data, Flag.none, stream.id, length);
      bytes += HEADER_LENGTH + length;
      if (stream.settleWrite(length)) this.#remnants.keep(stream);
      else if (stream.sendable) this.#ready.join(stream.turn); // behind the others
    }
    return bytes;
  }

  #gather(): void {
    if (this.#gathering || this.#flushing) return;
    this.#gathering = true;
    this.#gatheringSince = this.#now();
    setImmediate(this.#onTurnEnd);
  }

  readonly #onCreditWaited = (): void => {
    this.#creditTimer = undefined;
    if (this.#controlBytes > 0) this.flush();
  };

  readonly #onTurnEnd = (): void => {
    if (this.#isMoreToCome()) {
      this.#lookAtNextTurn(this.#onNextTurnEnd);
      return;
    }
    this.#gathering = false;
    this.#gathered = 0;
    const streams = this.#ready.size + (this.#sentAtOnce ? 1 : 0);
    if (streams > 0) this.#lonely = streams === 1 && this.#control.length === 0;
    this.#sentAtOnce = false;
    this.flush();
    if (this.#isLoopBusy) this.#lookAtNextTurn(this.#onTurnSeen);
  };

  /** This turn has brought something, so the next may as well. */
  #isMoreToCome(): boolean {
    const before = this.#gathered;
    this.#gathered = this.#ready.size + this.#control.length;
    return this.#gathered > before && !this.#isLoopBusy && this.#now() - this.#gatheringSince < GATHER_MS;
  }

  #lookAtNextTurn(then: () => void): void {
    this.#turnBegan = this.#now();
    setImmediate(then);
  }

  readonly #onTurnSeen = (): void => {
    this.#isLoopBusy = this.#now() - this.#turnBegan >= GATHER_MS;
  };

  readonly #onNextTurnEnd = (): void => {
    this.#onTurnSeen();
    this.#onTurnEnd();
  };
}
