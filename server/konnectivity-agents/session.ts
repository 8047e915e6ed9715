import { constants, type ServerHttp2Session } from "node:http2";
import { TokenBucket } from "../../shared/basics/rate-limit.ts";
import { PeerViolation } from "../../shared/link/link-events.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { FLOOD, onPipelinedPing, serverSession, violationOf } from "../../shared/node/http2.ts";
import type { AgentsContext } from "../agents/context.ts";

/** An agent makes one call; grpc-go opens no second one before it knows how many it may. */
const MAX_CALLS = 2;
/** Headers of an agent's call: grpc-go sends about ten. Their size is bounded by nghttp2 before its peer's ACK. */
const MAX_HEADERS = 64;
const MAX_SETTINGS = 32;
/** Bytes that an agent may send before it is authenticated (RFC 9113 §6.9.2). */
const FIRST_WINDOW = 65_535;
/** SETTINGS, calls, and PINGs that wait for no answer: an honest agent sends few of them. */
const EMPTY_FRAMES = { burst: 5_000, perSecond: 2_000 };

/** The HTTP/2 session of an agent, whose preface is unread in the socket. It ends with the socket. */
export function openSession(
  { socket, raw }: IncomingConnection,
  { options, metrics }: AgentsContext,
): ServerHttp2Session {
  const session = serverSession(socket, raw, {
    maxHeaderListPairs: MAX_HEADERS,
    maxSettings: MAX_SETTINGS,
    settings: {
      enablePush: false,
      maxConcurrentStreams: MAX_CALLS,
      maxHeaderListSize: options.headerLimit,
      initialWindowSize: FIRST_WINDOW,
    },
  });
  const emptyFrames = new TokenBucket(EMPTY_FRAMES);
  const onEmptyFrame = (): void => {
    if (session.destroyed || emptyFrames.take(1) === 0) return;
    const flood = new PeerViolation("it sends too many frames that carry nothing (PING, SETTINGS)");
    session.destroy(Object.assign(flood, { code: FLOOD }), constants.NGHTTP2_ENHANCE_YOUR_CALM);
  };
  onPipelinedPing(session, onEmptyFrame);
  for (const event of ["remoteSettings", "stream"]) session.on(event, onEmptyFrame);
  // Its streams and its socket tell of the end.
  session.on("error", (error) => {
    const violation = violationOf(error);
    if (violation !== undefined) metrics.http2Ended("agents", violation);
  });
  return session;
}
