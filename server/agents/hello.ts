import type { Hello, InnerWelcome } from "../../shared/link/control.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { printable } from "../../shared/outcomes.ts";
import { permits } from "../../shared/tls/identity.ts";
import { CloseCode, HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Credential } from "../tunnels/credential.ts";
import type { Links, ResumableLink } from "../tunnels/links.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";
import type { AgentRules } from "./identify.ts";
import type { Admitted } from "./run-tunnel.ts";

/** What a hello is judged by, outside or inside. */

/** The hello's words may only agree with what the credential says (design: "Trust"). */
export function mustAgree(hello: Pick<Hello, "cluster">, { name }: Pick<ClusterTunnels, "name">): void {
  if (hello.cluster === undefined || hello.cluster === name) return;
  throw new LinkRefused({
    closeCode: CloseCode.forbidden,
    reason: `this agent's credential belongs to cluster "${name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
  });
}

/**
 * A hello may come long after the credential was judged. Tunnels that stand when trust changes are judged again
 * (`cluster-runtime/reverify-agents.ts`), and this is none yet.
 */
export function mustStillBeTrusted(
  { peer, ca }: Credential,
  rules: Pick<AgentRules, "ca" | "identities" | "crlFault">,
): void {
  if (peer === undefined) return; // a token is judged again all the time
  const isOfCa = ca === undefined || ca === rules.ca;
  if (isOfCa && rules.crlFault(peer) === undefined && permits(rules.identities, "agent", peer)) return;
  const reason = "the trust of this cluster has changed during the handshake: connect again";
  throw new LinkRefused({ closeCode: CloseCode.draining, reason });
}

export interface ReserveDeps {
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/** A place for a new tunnel, or `LinkRefused`. `innerKey`: the key of the inner TLS that it begins with. */
export function reserve(
  { agentId, instance, probe }: Pick<Hello, "agentId" | "instance" | "probe">,
  { identity }: Credential,
  { cluster, links, draining }: ReserveDeps,
  innerKey?: LinkKey,
): Admitted {
  if (draining()) throw new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  const candidate = { agentId, instance, identity };
  cluster.pace.begin(candidate);
  const place = probe === true ? cluster.reserveProbe() : cluster.reserve(candidate);
  return { place, entry: links.issue(cluster.name, candidate, innerKey) };
}

/** The tunnel is over, or never came. */
export function giveBack({ place, entry }: Admitted, links: Links): void {
  place.release();
  if (entry.link === undefined) links.forget(entry.id);
}

/** A stream of which nothing is read costs so much at each end when memory is short, bytes. */
const SMALL_WINDOW = 16 * 1024;

/** What both ends of a tunnel let a new stream send: `--initial-window`, and less where memory is short. */
export function windowsAtFirst({ initialWindow }: Pick<ServerOptions, "initialWindow">): {
  readonly initialWindow: number;
  readonly freshWindow: number;
} {
  return { initialWindow: Math.min(SMALL_WINDOW, initialWindow), freshWindow: initialWindow };
}

/** What each welcome says. */
export function welcomeWords(
  { id: link }: Pick<ResumableLink, "id">,
  graceMs: number,
  options: Pick<ServerOptions, "serverId" | "keepaliveMs" | "initialWindow">,
): InnerWelcome {
  const { serverId, keepaliveMs } = options;
  const windows = windowsAtFirst(options);
  return { type: "welcome", version: HANDSHAKE_VERSION, serverId, link, keepaliveMs, graceMs, ...windows };
}

/** Who only measures does not come back for its link: it begins anew. */
export function graceOf({ probe }: Pick<Hello, "probe">, { linkGraceMs }: Pick<ServerOptions, "linkGraceMs">): number {
  return probe === true ? 0 : linkGraceMs;
}
