import type { Socket } from "node:net";
import type { WebSocket } from "ws";
import type { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { acceptCarrier } from "../../shared/link/accept.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello, Welcome } from "../../shared/link/control.ts";
import { PeerFault } from "../../shared/link/inner-tls.ts";
import { Link } from "../../shared/link/link.ts";
import { remoteOf, sourceOf } from "../../shared/listen/incoming-connection.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { Credential } from "../tunnels/credential.ts";
import type { AcceptedResume } from "../tunnels/links.ts";
import type { AnonymousCarriers } from "./anonymous.ts";
import { HandshakeTime } from "./handshake-time.ts";
import { giveBack, graceOf, mustAgree, mustStillBeTrusted, reserve, welcomeWords } from "./hello.ts";
import { attachInside, type InnerDeps, type Stranger } from "./inner.ts";
import { refusalKind } from "./refusal-kind.ts";
import { type Admitted, hold, linkOptions } from "./run-tunnel.ts";

export interface AttachDeps extends InnerDeps {
  readonly options: InnerDeps["options"] & { readonly helloTimeoutMs: number };
  readonly throttledLog: ThrottledLog;
  /** Of all agents together. */
  readonly turns: TurnQueue;
  /** Anonymous carriers whose hello has come, and wants inner TLS. */
  readonly innerHandshakes: AnonymousCarriers;
}

/** Who has come, as far as the TLS outside and the request say. */
export interface Arrival {
  /** An error: why that is nobody. The inner TLS may tell. */
  readonly credential: Credential | CulvertError;
  /** Present as long as it may be nobody. */
  readonly anonymous?: HandshakeTime;
  /** Present with it: by what it would be known (`shownBy`). */
  readonly shown?: string;
}

/** What a hello has got: a place for a new tunnel, the link that goes on, or the inner TLS handshake. */
type Verdict =
  | ({ readonly kind: "new"; readonly credential: Credential } & Admitted)
  | ({
      readonly kind: "resume";
      readonly peerReceived: number;
      /** What the agent has shown on this carrier. */
      readonly credential: Credential | undefined;
    } & AcceptedResume)
  | { readonly kind: "inner" };

/**
 * One connection of an agent: the first of a tunnel, which is told here to its end, or another one for a link that is
 * there already.
 */
export async function attach(ws: WebSocket, socket: Socket, arrival: Arrival, deps: AttachDeps): Promise<void> {
  const { options } = deps;
  const { anonymous, shown = "" } = arrival;
  const who: Stranger = { remote: remoteOf(socket), address: sourceOf(socket).address, identity: "", shown };
  if (!(arrival.credential instanceof CulvertError)) who.identity = arrival.credential.identity;
  let verdict: Verdict | undefined;
  let judged = false;
  try {
    const { carrier, hello } = await acceptCarrier(ws, socket, {
      helloTimeoutMs: Math.min(options.helloTimeoutMs, anonymous?.leftMs ?? Number.POSITIVE_INFINITY),
      keepaliveMs: options.keepaliveMs,
      turns: deps.turns,
      welcome: (words) => {
        judged = true;
        if (words.resume !== undefined) who.resumes = words.resume.link;
        verdict = "inner" in words ? judgeOuter(words, deps) : judge(words, mustBeKnown(arrival, deps), deps);
        if (verdict.kind === "resume") return verdict.answer;
        return verdict.kind === "new" ? firstWelcome(words as Hello, verdict, deps) : undefined;
      },
    });
    if (verdict?.kind !== "inner") anonymous?.over();
    if (verdict?.kind === "resume") resume(carrier, verdict, who.remote);
    else if (verdict?.kind === "new") {
      const words = hello as Hello;
      const link = new Link(verdict.entry.id, who.remote, carrier, linkOptions(graceOf(words, options), deps));
      await hold({ link, pipe: link }, words, verdict, verdict.credential, deps);
    } else if (verdict?.kind === "inner") {
      if (anonymous !== undefined) enterInner(carrier, who, anonymous, deps);
      const time = anonymous ?? new HandshakeTime(socket, options.handshakeTimeoutMs);
      await attachInside(carrier, who, time, deps);
    }
  } catch (error) {
    // Until its hello, what ends a connection is the agent's doing or the network's; later, it is a refusal or our bug.
    const isRefusal = error instanceof LinkRefused || error instanceof CulvertError || error instanceof PeerFault;
    if (isRefusal || !judged) refusedAfterUpgrade(anonymous?.dropped ?? error, who, deps);
    else {
      ws.terminate();
      const { identity, remote } = who;
      const reason = "a fault of this server: its log has it";
      deps.metrics.agentRefused("internal", { cluster: deps.cluster.name, from: identity, reason });
      deps.agentLog.write(
        "error",
        { cluster: deps.cluster, identity },
        { err: error, identity, remote },
        "agent refused",
      );
    }
  } finally {
    if (verdict?.kind === "new") giveBack(verdict, deps.links);
  }
}

/** Who says everything outside must have proved it there. */
function mustBeKnown({ credential }: Arrival, { door, cluster }: AttachDeps): Credential {
  if (credential instanceof CulvertError) {
    const { message: reason, fault } = credential;
    throw new LinkRefused({ closeCode: CloseCode.unauthenticated, reason, fault });
  }
  if (door.innerTls !== "always") return credential;
  const reason = `agents of cluster "${cluster.name}" come with inner TLS only (--inner-tls=always of the agent)`;
  throw new LinkRefused({ closeCode: CloseCode.forbidden, reason });
}

/** The hello's words may only agree with what the credential says (design: "Trust"). */
function judge(hello: Hello, credential: Credential, deps: AttachDeps): Verdict {
  const { cluster, links, door } = deps;
  mustAgree(hello, cluster);
  mustStillBeTrusted(credential, door);
  const { agentId, instance, resume } = hello;
  if (resume === undefined) return { kind: "new", credential, ...reserve(hello, credential, deps) };
  const owner = { agentId, instance, identity: credential.identity };
  const peerReceived = resume.received;
  return { kind: "resume", peerReceived, credential, ...links.resume(cluster.name, resume, owner) };
}

/** An outer hello does not say who sends it: that is known from the inner TLS, or from the proof of a resume. */
function judgeOuter({ resume }: OuterHello, { cluster, links, door }: AttachDeps): Verdict {
  if (door.innerTls === "never") {
    const reason = `cluster "${cluster.name}" takes no inner TLS (--inner-tls of the server, agents.innerTls of its document)`;
    throw new LinkRefused({ closeCode: CloseCode.forbidden, reason });
  }
  if (resume === undefined) return { kind: "inner" };
  const peerReceived = resume.received;
  return { kind: "resume", peerReceived, credential: undefined, ...links.resume(cluster.name, resume, undefined) };
}

/** A resume is done with its answer; who begins an inner handshake takes longer, and may be anybody. */
function enterInner(
  carrier: Carrier,
  { address }: Stranger,
  time: HandshakeTime,
  { cluster, innerHandshakes }: AttachDeps,
): void {
  innerHandshakes.enter(cluster.name, address, time, (reason) => carrier.abandon(CloseCode.limited, reason));
}

function firstWelcome(hello: Hello, { entry }: Admitted, { options }: AttachDeps): Welcome {
  return { ...welcomeWords(entry, graceOf(hello, options), options), key: entry.key.text };
}

/** The tunnel notices, and tells. */
function resume(carrier: Carrier, verdict: Verdict & { readonly kind: "resume" }, remote: string): void {
  const { entry, link, answer, peerReceived, credential } = verdict;
  try {
    if (credential !== undefined) entry.onCredential?.(credential);
    link.offer(carrier, remote, { peerReceived, named: answer.received });
  } catch (error) {
    carrier.destroy(error as Error);
    throw error;
  }
}

/** Close codes of resumes that were refused, in words of a metric. */
const RESUME_REFUSALS: Readonly<Record<number, string>> = {
  [CloseCode.unknownLink]: "unknown_link",
  [CloseCode.foreignLink]: "foreign_link",
  [CloseCode.badProof]: "bad_proof",
  [CloseCode.linkOfAnother]: "link_of_another",
  [CloseCode.badOffset]: "bad_offset",
};

function refusedAfterUpgrade(
  error: unknown,
  { remote, address, identity, shown, resumes = "" }: Stranger,
  { cluster, metrics, agentLog, throttledLog }: AttachDeps,
): void {
  const refusal = error instanceof LinkRefused ? error : undefined;
  const reason = printable(refusal?.reason ?? (error instanceof Error ? error.message : String(error)));
  const code = String(refusal?.closeCode ?? (error instanceof CulvertError ? agentStatus(error.code) : "hello"));
  metrics.agentRefused(code, { cluster: cluster.name, from: identity === "" ? address : identity, reason });
  const closeCode = refusal?.closeCode ?? 0;
  const line = { remote, cluster: cluster.name, identity, code: refusal?.closeCode, reason };
  const resumeRefusal = RESUME_REFUSALS[closeCode];
  // A server that drains refuses agents by design: they come back to it, or to another server, by themselves.
  const level = closeCode === CloseCode.draining ? "info" : "warn";
  if (resumeRefusal !== undefined) {
    metrics.links.resumeFailed(resumeRefusal);
    // An agent whose server was killed asks for its old link several times a minute, until the grace of the link is over.
    throttledLog.write("warn", line, "resume refused", { kind: resumeRefusal, once: `${resumes} ${closeCode}` });
  } else if (identity === "") throttledLog.write(level, line, "agent refused", { kind: refusalKind(code, shown) });
  else agentLog.write(level, { cluster, identity }, line, "agent refused");
}
