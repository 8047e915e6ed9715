import type { Target } from "./target.ts";
import { certificates } from "./targets/certificates.ts";
import { clientHello } from "./targets/client-hello.ts";
import { connectAnswer } from "./targets/connect-answer.ts";
import { connectTarget } from "./targets/connect-target.ts";
import { handshake } from "./targets/handshake.ts";
import { konnectivityPackets } from "./targets/konnectivity-packets.ts";
import { pac } from "./targets/pac.ts";
import { proxyChallenges } from "./targets/proxy-challenges.ts";
import { proxyHeader } from "./targets/proxy-header.ts";
import { socks } from "./targets/socks.ts";
import { socks5Requests } from "./targets/socks5-requests.ts";
import { streamHead } from "./targets/stream-head.ts";
import { usualConnect } from "./targets/usual-connect.ts";
import { yamuxFrames } from "./targets/yamux-frames.ts";
import { yamuxSession } from "./targets/yamux-session.ts";

/** All that is fuzzed: whatever reads bytes of a peer that is not trusted, or not yet. */
export const TARGETS: readonly Target[] = [
  yamuxFrames,
  yamuxSession,
  socks5Requests,
  streamHead,
  handshake,
  konnectivityPackets,
  clientHello,
  proxyHeader,
  connectTarget,
  usualConnect,
  connectAnswer,
  proxyChallenges,
  pac,
  socks,
  certificates,
];

export function targetNamed(name: string): Target {
  const found = TARGETS.find((target) => target.name === name);
  if (found !== undefined) return found;
  throw new Error(`There is no target "${name}". Use: ${TARGETS.map((target) => target.name).join(", ")}.`);
}
