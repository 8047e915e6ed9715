import type { Carrier } from "../../shared/link/carrier.ts";
import { type InnerHello, parseInnerHello, type Refused } from "../../shared/link/inner-hello.ts";
import type { InnerServers, InnerTls } from "../../shared/link/inner-tls.ts";
import { Link } from "../../shared/link/link.ts";
import type { TlsMaterial } from "../../shared/net/tls-material.ts";
import { agentStatus, CulvertError, printable } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { InnerTlsRule } from "../clusters/cluster.ts";
import type { ServerOptions } from "../options.ts";
import type { Credential } from "./credential.ts";
import { type Admitted, type HoldDeps, hold, linkOptions } from "./hold.ts";
import { type AgentRules, identify } from "./identify.ts";
import { mustAgree, type ReserveDeps, reserve, welcomeWords } from "./judge.ts";

/** What the door of a cluster says to agents whose outer TLS ends in between. */
export interface InnerDoor extends AgentRules {
  readonly innerTls: InnerTlsRule;
  readonly tls: TlsMaterial;
}

export interface InnerDeps extends HoldDeps, ReserveDeps {
  readonly options: HoldDeps["options"] & Pick<ServerOptions, "serverId" | "handshakeTimeoutMs" | "maxJudgedAgents">;
  readonly door: InnerDoor;
  readonly innerServers: InnerServers;
}

/** Somebody on a connection; more is told of him as it is found. */
export interface Stranger {
  readonly remote: string;
  identity: string;
  /** His hello has been judged: what goes wrong from now on is a refusal, or our bug. */
  judged: boolean;
}

/**
 * A carrier of which nothing is known: TLS over its link, and from inside who it is (design: "Handshake"). Then it is the
 * first of a tunnel, told here to its end; or its agent has only proved anew whose another link is.
 */
export async function attachInside(
  carrier: Carrier,
  who: Stranger,
  onKnown: () => void,
  deps: InnerDeps,
): Promise<void> {
  who.judged = false;
  const { handshakeTimeoutMs: timeoutMs, linkGraceMs: graceMs } = deps.options;
  // Without grace: nobody could come back for a link that has no name.
  const link = new Link("", who.remote, carrier, { ...linkOptions(deps), graceMs: 0 });
  const inner = await deps.innerServers.accept(link, deps.door.tls, timeoutMs);
  let admitted: Admitted | undefined;
  try {
    const { hello, credential } = await meet(inner, deps);
    who.identity = credential.identity;
    who.judged = true;
    onKnown();
    mustAgree(hello, deps.cluster);
    if (hello.renews !== undefined) {
      renew(hello, hello.renews, credential, deps);
      inner.pipe.sendWords({ type: "renewed" });
      inner.pipe.end();
      return;
    }
    admitted = reserve(hello, credential, deps);
    admitted.entry.key = inner.key;
    link.settle(admitted.entry.id, graceMs);
    inner.pipe.sendWords(welcomeWords(admitted.entry, deps.options));
    await hold({ link, pipe: inner.pipe }, hello, admitted, credential, deps);
  } catch (error) {
    inner.pipe.sendWords(refused(error));
    inner.pipe.end();
    throw error;
  } finally {
    if (admitted !== undefined) {
      admitted.place.release();
      if (admitted.entry.link === undefined) deps.links.forget(admitted.entry.id);
    }
  }
}

/** The hello, and who says it. What it takes to judge a token has a deadline of its own. */
async function meet(
  { socket, pipe }: InnerTls,
  { door, options: { handshakeTimeoutMs: deadlineMs, maxJudgedAgents: maxJudged } }: InnerDeps,
): Promise<{ readonly hello: InnerHello; readonly credential: Credential }> {
  const late = setTimeout(() => pipe.destroy(new Error("no hello came inside the inner TLS")), deadlineMs);
  const json = await pipe.readWords().finally(() => clearTimeout(late));
  const hello = readHello(json);
  const headers = hello.bearer === undefined ? {} : { authorization: `Bearer ${hello.bearer}` };
  return { hello, credential: await identify(socket, headers, door, { deadlineMs, maxJudged, onJudging: () => {} }) };
}

function readHello(json: string): InnerHello {
  try {
    return parseInnerHello(json);
  } catch (error) {
    throw new LinkRefused({ closeCode: CloseCode.badHello, reason: (error as Error).message });
  }
}

/** Streams and link stay as they are; what was proved is as good as a new carrier with its own handshake. */
function renew(
  { agentId, instance }: InnerHello,
  link: string,
  credential: Credential,
  { cluster, links }: InnerDeps,
): void {
  const { identity } = credential;
  links.judgeRenewal(cluster.name, link, { agentId, instance, identity }).onCredential?.(credential);
}

/** A refusal is told inside: what it says of an agent is nobody's in between. */
function refused(error: unknown): Refused {
  if (error instanceof LinkRefused) {
    const { closeCode, reason } = error;
    return { type: "refused", reason, ...(closeCode !== undefined && { closeCode }) };
  }
  if (!(error instanceof CulvertError)) return { type: "refused", status: 500, reason: "a fault of this server" };
  const { code, message, retryAfterMs } = error;
  return {
    ...{ type: "refused", status: agentStatus(code), reason: printable(message) },
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}
