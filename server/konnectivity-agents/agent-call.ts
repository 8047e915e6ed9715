import {
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { deferred } from "../../shared/basics/promises.ts";
import { type GrpcStatus, trailersOf } from "../../shared/konnectivity/grpc-call.ts";
import { printable } from "../../shared/outcomes.ts";
import { PROBE_MS } from "../tunnels/opening.ts";
import { AgentWindow } from "./agent-window.ts";

const GRPC = "application/grpc";

/** Time for the last packets and the status to arrive before the connection is closed, ms. */
const LINGER_MS = 500;
/** A connection is lost when no byte comes for this many intervals of pings. */
const SILENT_INTERVALS = 2.5;

/** The server's end of `AgentService/Connect`: one gRPC stream, and the HTTP/2 session that carries nothing else. */
export class AgentCall {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  /** Resolves when the stream is over, with an error unless one end has closed it. */
  readonly ended: Promise<Error | undefined>;
  /** Bytes that have come. */
  received = 0;
  readonly #session: ServerHttp2Session;
  readonly #over = deferred<Error | undefined>();
  #lastByteAt = performance.now();
  #pings: NodeJS.Timeout | undefined;
  #probe: NodeJS.Timeout | undefined;
  #status: Record<string, string> | undefined;
  #isOver = false;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, session: ServerHttp2Session) {
    this.stream = stream;
    this.headers = headers;
    this.#session = session;
    this.ended = this.#over.promise;
    let failure: Error | undefined = new Error("its connection was lost");
    stream.on("error", (error) => {
      failure = error;
    });
    // Node makes an end of a connection that is lost, too.
    stream.on("end", () => this.#onOver(stream.aborted ? failure : undefined));
    stream.on("close", () => this.#onOver(failure));
    stream.on("wantTrailers", () => stream.sendTrailers(this.#status ?? {}));
    // grpc-go says goodbye before it closes a connection. A process that is killed does not.
    session.on("goaway", (code) => {
      if (code === constants.NGHTTP2_NO_ERROR) failure = undefined;
    });
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Accepts the call, without a tunnel yet. */
  respond(headers: OutgoingHttpHeaders): void {
    this.stream.respond({ ":status": 200, "content-type": GRPC, ...headers }, { waitForTrailers: true });
  }

  /** Reads the stream from now on, and looks whether the agent is there. */
  read(onChunk: (chunk: Buffer) => void, pingMs: number): AgentWindow {
    const window = new AgentWindow(this.#session, this.stream);
    this.stream.on("data", (chunk: Buffer) => {
      this.#lastByteAt = performance.now();
      this.received += chunk.length;
      window.onReceived(chunk.length);
      onChunk(chunk);
    });
    void this.ended.then(() => window.close());
    this.#pings = setInterval(() => {
      if (performance.now() - this.#lastByteAt > SILENT_INTERVALS * pingMs) this.#lose();
      else this.ping();
    }, pingMs).unref();
    return window;
  }

  /** Asks gRPC for a sign of life. */
  ping(onOver?: (isAnswered: boolean) => void): void {
    if (this.#session.closed || this.#session.destroyed) return;
    this.#session.ping((error) => {
      if (error === null) this.#lastByteAt = performance.now();
      onOver?.(error === null);
    });
  }

  /** Asks for a sign of life: the agent has not done in time what was asked of it. */
  probe(): void {
    if (this.#probe !== undefined || this.#isOver) return;
    const askedAt = performance.now();
    this.ping();
    this.#probe = setTimeout(() => {
      this.#probe = undefined;
      if (this.#lastByteAt < askedAt) this.#lose();
    }, PROBE_MS).unref();
  }

  #lose(): void {
    this.#onOver(new Error("no byte has come from it for too long"));
    this.#session.destroy();
  }

  /**
   * Ends the call with a status and its sentence. A stock agent prints only what comes before the trailers of a call
   * that fails at once: "expected one server ID in the context, got [...]". So its log gets the sentence there, too.
   */
  refuse(status: GrpcStatus, sentence: string): void {
    if (!this.stream.headersSent && !this.stream.destroyed && !this.stream.closed)
      this.respond({ serverid: ["refused", printable(sentence)] });
    this.end(status, sentence);
  }

  /** Ends the call after what was written. */
  end(status: GrpcStatus, sentence: string): void {
    if (this.#status !== undefined) return;
    this.#status = trailersOf(status, sentence);
    this.#onOver(undefined);
    if (!this.stream.destroyed) this.stream.end();
    this.#session.close();
  }

  #onOver(failure: Error | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearInterval(this.#pings);
    clearTimeout(this.#probe);
    this.#over.resolve(failure);
    // The connection carries nothing else, and must not outlive the call of an agent that keeps it open.
    setTimeout(() => this.#session.destroy(), LINGER_MS).unref();
  }
}
