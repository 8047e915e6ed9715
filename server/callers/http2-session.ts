import { constants, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { isGrpc } from "../../shared/konnectivity/grpc-call.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { FLOOD, onPipelinedPing, serverSession, violationOf } from "../../shared/node/http2.ts";
import { printable } from "../../shared/outcomes.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { authenticateCaller, authenticateWithoutToken, type Caller, type CallerHost } from "./authenticate.ts";
import { STREAM_WINDOW } from "./caller-end.ts";
import { serveConnect } from "./connect.ts";
import { traceparentIn } from "./connect-trace.ts";
import { serveGrpc } from "./grpc-service.ts";
import { Http2Caller, refuseRequest } from "./http2-caller.ts";

/**
 * CONNECTs of one session at once: as many as a cluster may have. A client that puts all its CONNECTs on one connection
 * waits in silence at this number, and its cluster's limits answer with a sentence.
 */
const MAX_STREAMS = 65_536;
/**
 * Streams that a caller may open in one turn of the event loop, which could read thousands of requests while all other
 * callers wait. Each turn makes room for as many again. Clients open no more before they have read the first SETTINGS.
 */
const NEW_STREAMS = 100;
/**
 * Bytes that a caller may send on all streams together before Node has taken them. Node takes them at once, read or
 * not, and says so after each half: on a line of 20 kB/s a caller that only uploads hears from the server every 14 s.
 */
const SESSION_WINDOW = 512 * 1024;
/** A session without streams ends after this time, ms. */
const IDLE_MS = 10 * 60_000;
/** Node refuses streams beyond this, MiB; the cluster's own limits come first. */
const SESSION_MEMORY = 1_024;

/**
 * Streams that a caller may reset, for each second. Go's clients close a CONNECT by a reset, and nghttp2 ends a session
 * for more than 33 a second. Node.js 20 has no such option: there callers of more connect again (SECURITY.md).
 */
const STREAM_RESETS = 10_000;

/** SETTINGS, resets, and PINGs that wait for no answer: an honest caller sends few of them. */
const EMPTY_FRAMES = { perSecond: 2_000, burst: 4_000 } as const;
/** A CONNECT that its caller resets at once, before it has the answer, costs as much as this many of them. */
const RESET_CONNECT = 20;
/** A dial that is given up later than this is no flood, ms: its target may be silent, or another address quicker. */
const AT_ONCE_MS = 200;

/** The connection is lost: each of its CONNECTs has a line of its own. */
const LOST = ["ECONNRESET", "EPIPE"];

/** Interval between two checks for requests that Node has refused by itself, ms. */
const LOOK_MS = 250;

/**
 * `NGHTTP2_ERR_PROTO`. The GOAWAY of a client has to name a stream of its server. The client grpc-go names its own last
 * stream before it closes a connection: nghttp2 takes this for a violation, and ends the session.
 */
const PROTOCOL_ERROR = -505;

const { NGHTTP2_ENHANCE_YOUR_CALM } = constants;

/**
 * One HTTP/2 connection of a caller that has proved who it is (RFC 9113 §8.5). Each stream is a CONNECT of its own, or
 * a call of Konnectivity's gRPC service.
 * It ends with its connection, after some time without streams, when its peer sends a flood, and with its last stream
 * when its certificate is not accepted any more.
 */
export class CallerSession {
  readonly #connection: IncomingConnection;
  readonly #host: CallerHost;
  readonly #context: ServerContext;
  readonly #session: ServerHttp2Session;
  readonly #emptyFrames = new TokenBucket(EMPTY_FRAMES);
  readonly #streams = new Set<ServerHttp2Stream>();
  #allowed = NEW_STREAMS;
  /** It has had streams that are no calls of gRPC. */
  #hasConnects = false;
  /** Streams that were served, or were refused by Node. */
  #begun = 0;
  /** It ends; frames that came with the last one are still to be read. */
  #isFlooded = false;

  /**
   * The first byte that is unread in the connection's socket is that of the connection preface. `onViolation`: the
   * caller has sent a flood, or has broken the protocol.
   */
  constructor(connection: IncomingConnection, host: CallerHost, onViolation: () => void, context: ServerContext) {
    const { socket, raw } = connection;
    this.#connection = connection;
    this.#host = host;
    this.#context = context;
    const session = serverSession(socket, raw, sessionOptions(context));
    this.#session = session;
    session.setLocalWindowSize(SESSION_WINDOW);
    session.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => this.#onStream(stream, headers));
    onPipelinedPing(session, () => this.#chargeEmpty(1));
    session.on("remoteSettings", () => this.#chargeEmpty(1));
    session.on("localSettings", () => this.#allowMore());
    session.on("error", (error: NodeJS.ErrnoException) => {
      if (LOST.includes(error.code ?? "") || (error.errno === PROTOCOL_ERROR && !this.#hasConnects)) return;
      this.#log(error.message);
      const violation = violationOf(error);
      if (violation === undefined) return;
      context.metrics.http2Ended(host.kind === "unix" ? "unix" : "callers", violation);
      onViolation();
    });
    const looks = SharedInterval.every(LOOK_MS).add(() => this.#chargeRefused());
    const { memory } = host.tunnels;
    const bytes = CONNECTION_BYTES[host.kind];
    memory.onConnection(bytes);
    session.once("close", () => {
      memory.onConnection(-bytes);
      connection.clearDeadline();
      looks.leave();
    });
    this.#onIdle();
  }

  /** Sends GOAWAY: there are no new CONNECTs, and the session ends with the last one that is open. */
  close(): void {
    this.#session.close();
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on("error", ignore);
    this.#begun++;
    if (this.#isFlooded) return;
    if (!isGrpc(headers)) this.#hasConnects = true;
    this.#streams.add(stream);
    this.#connection.clearDeadline();
    const openedAt = performance.now();
    stream.once("close", () => {
      this.#streams.delete(stream);
      if (!wasServed(stream)) this.#chargeEmpty(performance.now() - openedAt < AT_ONCE_MS ? RESET_CONNECT : 1);
      if (this.#streams.size === 0) this.#onIdle();
      this.#allowMore();
    });
    setImmediate(() => this.#serve(stream, headers));
  }

  /** In the next turn: a CONNECT whose reset came with it costs nothing more. */
  #serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    this.#allowMore();
    if (stream.closed || stream.destroyed) return;
    const credential = { host: this.#host, verify: () => this.#verify(headers), traceparent: traceparentIn(headers) };
    if (headers[":method"] === "CONNECT" && headers[":authority"] !== undefined) {
      const caller = new Http2Caller(stream, this.#connection, this.#host);
      void serveConnect(caller, headers[":authority"], credential, this.#context);
    } else if (isGrpc(headers)) serveGrpc(stream, headers, this.#connection, credential, this.#context);
    else refuseRequest(stream);
  }

  async #verify(headers: IncomingHttpHeaders): Promise<Caller> {
    try {
      return await authenticateCaller(this.#host, this.#connection, headers, this.#context);
    } catch (error) {
      this.#closeIfRefused();
      throw error;
    }
  }

  /** Open streams continue. For a further one the caller connects anew, perhaps with another certificate. */
  #closeIfRefused(): void {
    try {
      authenticateWithoutToken(this.#host, this.#connection);
    } catch {
      this.close();
    }
  }

  /** A caller has to acknowledge one number before it gets the next, and to read the answers to what was refused. */
  #allowMore(): void {
    const session = this.#session;
    if (session.destroyed || session.pendingSettingsAck || this.#allowed === MAX_STREAMS) return;
    if (this.#streams.size + NEW_STREAMS <= this.#allowed) return;
    let open = 0;
    for (const { writableEnded, writableLength } of this.#streams) if (!writableEnded || writableLength === 0) open++;
    const allowed = Math.min(open + NEW_STREAMS, MAX_STREAMS);
    if (allowed <= this.#allowed) return;
    this.#allowed = allowed;
    session.settings({ maxConcurrentStreams: allowed });
  }

  #onIdle(): void {
    if (this.#session.destroyed) return;
    this.#closeIfRefused();
    this.#connection.setDeadline(IDLE_MS, () => this.#session.close());
  }

  /** Node reads the header of a request that is too large, refuses it, and emits nothing. Its stream has a number. */
  #chargeRefused(): void {
    if (this.#session.destroyed) return;
    const begun = Math.ceil((this.#session.state.lastProcStreamID ?? 0) / 2); // those of a client are odd
    this.#chargeEmpty((begun - this.#begun) * RESET_CONNECT);
    this.#begun = begun;
  }

  #chargeEmpty(count: number): void {
    if (this.#isFlooded || this.#emptyFrames.charge(count) === 0) return;
    this.#isFlooded = true;
    const flood = new Error("a flood of frames without a CONNECT (PING, SETTINGS, RST_STREAM, too large headers)");
    this.#session.destroy(Object.assign(flood, { code: FLOOD }), NGHTTP2_ENHANCE_YOUR_CALM);
  }

  #log(reason: string): void {
    const { kind, tunnels } = this.#host;
    const remote = kind === "unix" ? undefined : this.#connection.remote;
    const line = { cluster: tunnels.name, remote, reason: printable(reason) };
    this.#context.throttledLog.write("warn", line, "HTTP/2 connection of a caller ended");
  }
}

function sessionOptions({ options }: ServerContext) {
  return {
    maxSessionMemory: SESSION_MEMORY,
    streamResetBurst: STREAM_RESETS,
    streamResetRate: STREAM_RESETS,
    settings: {
      maxConcurrentStreams: NEW_STREAMS,
      initialWindowSize: STREAM_WINDOW,
      maxHeaderListSize: options.headerLimit,
    },
  };
}

/** Whether the target was connected, or its caller has read why not. */
function wasServed({ headersSent, sentHeaders, writableFinished }: ServerHttp2Stream): boolean {
  return headersSent && (sentHeaders?.[":status"] === 200 || writableFinished);
}

function ignore(): void {}
