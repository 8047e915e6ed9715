import type { IncomingHttpHeaders } from "node:http";
import type { TLSSocket } from "node:tls";
import type { Carrier } from "../../shared/link/carrier.ts";
import { type InnerHello, parseInnerHello, type Refused } from "../../shared/link/control.ts";
import { UntrustedLink } from "../../shared/link/inner-pipe.ts";
import { type InnerServers, type InnerTls, PeerFault } from "../../shared/link/inner-tls.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import type { TlsMaterial } from "../../shared/tls/tls-material.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ClusterSide, InnerTlsRule } from "../clusters/cluster.ts";
import { ServerNames } from "../clusters/names.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Credential } from "../tunnels/credential.ts";
import type { HandshakeTime } from "./handshake-time.ts";
import { giveBack, graceOf, mustAgree, mustStillBeTrusted, type ReserveDeps, reserve, welcomeWords } from "./hello.ts";
import { type AgentRules, identify } from "./identify.ts";
import { shownBy } from "./refusal-kind.ts";
import { type HoldDeps, hold, linkOptions } from "./run-tunnel.ts";

/** What the door of a cluster says to agents whose outer TLS ends in between. */
export interface InnerDoor extends AgentRules {
  readonly innerTls: InnerTlsRule;
  readonly tls: TlsMaterial;
  /** Its names; none: it answers to every one. */
  readonly side: Pick<ClusterSide, "sni">;
}

export interface InnerDeps extends HoldDeps, ReserveDeps {
  readonly options: HoldDeps["options"] &
    Pick<ServerOptions, "serverId" | "linkGraceMs" | "handshakeTimeoutMs" | "maxJudgedAgents">;
  readonly door: InnerDoor;
  readonly innerServers: InnerServers;
}

/** Somebody on a connection; more is told of him as it is found. */
export interface Stranger {
  readonly remote: string;
  readonly address: string;
  identity: string;
  /** By what it would be known (`shownBy`), there or inside. */
  shown: string;
  /** The link that it wants to resume. */
  resumes?: string;
}

/** Who stands at the other end of an inner TLS. */
interface Met {
  readonly link: UntrustedLink;
  readonly inner: InnerTls;
  readonly hello: InnerHello;
  readonly credential: Credential;
}

/**
 * A carrier of which nothing is known: TLS over its link, and from inside who it is (design: "Handshake"). Then it is the
 * first of a tunnel, told here to its end; or its agent has only proved anew whose another link is.
 */
export async function attachInside(
  carrier: Carrier,
  who: Stranger,
  time: HandshakeTime,
  deps: InnerDeps,
): Promise<void> {
  const link = new UntrustedLink(who.remote, carrier, linkOptions(0, deps));
  const inner = await deps.innerServers.accept(link, deps.door.tls, time.leftMs);
  const json = await firstWords(inner, time.leftMs);
  const met = await orRefused(inner, async () => {
    mustMean(deps, inner.socket);
    const hello = readHello(json);
    if (hello.renews !== undefined) who.resumes = hello.renews;
    const proofs = hello.bearer === undefined ? {} : { authorization: `Bearer ${hello.bearer}` };
    who.shown = shownBy(inner.socket, proofs, deps.door);
    const credential = await time.apart(() => whoSays(proofs, inner, who.address, deps));
    who.identity = credential.identity;
    mustAgree(hello, deps.cluster);
    mustStillBeTrusted(credential, deps.door);
    return { link, inner, hello, credential };
  });
  time.over();
  if (met.hello.renews === undefined) await serve(met, deps);
  else await orRefused(inner, () => renew(met, deps));
}

/** A refusal is told inside: what it says of an agent is nobody's in between. */
async function orRefused<T>({ pipe }: InnerTls, step: () => T | Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    pipe.sendWords(refused(error));
    pipe.end();
    throw error;
  }
}

async function firstWords({ pipe }: InnerTls, deadlineMs: number): Promise<string> {
  const late = setTimeout(() => pipe.destroy(new Error("no hello came inside the inner TLS")), deadlineMs);
  try {
    return await pipe.readWords();
  } catch (error) {
    throw new PeerFault(error as Error); // the link is over
  } finally {
    clearTimeout(late);
  }
}

/** Which cluster's door this is, somebody in between may have said; whom the agent means, it says inside. */
function mustMean({ cluster, door: { side } }: InnerDeps, { servername }: TLSSocket): void {
  const names = new ServerNames([{ value: cluster, names: side.sni }]);
  if (!servername || names.find(servername) !== undefined) return;
  throw new LinkRefused({
    closeCode: CloseCode.forbidden,
    reason: `this is cluster "${cluster.name}", and inside "${printable(servername, 100)}" was asked for, which is none of its names (agents.sni)`,
  });
}

function readHello(json: string): InnerHello {
  try {
    return parseInnerHello(json);
  } catch (error) {
    throw new LinkRefused({ closeCode: CloseCode.badHello, reason: (error as Error).message });
  }
}

/** What others take to judge a token has a deadline of its own. */
async function whoSays(
  proofs: IncomingHttpHeaders,
  inner: InnerTls,
  address: string,
  { door, options: { handshakeTimeoutMs: deadlineMs, maxJudgedAgents: maxJudged } }: InnerDeps,
): Promise<Credential> {
  return await identify(inner, proofs, door, { address, deadlineMs, maxJudged, onJudging: () => {} });
}

/** A new tunnel, to its end. */
async function serve({ link, inner, hello, credential }: Met, deps: InnerDeps): Promise<void> {
  const { pipe, key } = inner;
  const graceMs = graceOf(hello, deps.options);
  const admitted = await orRefused(inner, () => reserve(hello, credential, deps, key));
  const { entry } = admitted;
  try {
    link.assignId(entry.id, graceMs);
    pipe.sendWords(welcomeWords(entry, graceMs, deps.options));
    await hold({ link, pipe }, hello, admitted, credential, deps);
  } finally {
    giveBack(admitted, deps.links);
  }
}

/** Streams and link stay as they are; what was proved is as good as a new carrier with its own handshake. */
function renew({ inner: { pipe }, hello, credential }: Met, { cluster, links }: InnerDeps): void {
  const { agentId, instance, renews = "" } = hello;
  const { identity } = credential;
  links.judgeRenewal(cluster.name, renews, { agentId, instance, identity }).onCredential?.(credential);
  pipe.sendWords({ type: "renewed" });
  pipe.end();
}

function refused(error: unknown): Refused {
  if (error instanceof LinkRefused) {
    const { closeCode, reason, fault, retryAfterMs } = error;
    return {
      ...{ type: "refused", reason },
      ...(fault !== undefined && { fault }),
      ...(closeCode !== undefined && { closeCode }),
      ...(retryAfterMs !== undefined && { retryAfterMs }),
    };
  }
  if (!(error instanceof CulvertError)) return { type: "refused", status: 500, reason: "a fault of this server" };
  const { code, message, fault, retryAfterMs } = error;
  return {
    ...{ type: "refused", status: agentStatus(code), reason: printable(message) },
    ...(fault !== undefined && { fault }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}
