import type { Hello } from "../../shared/link/control.ts";
import type { InnerWelcome } from "../../shared/link/inner-hello.ts";
import { printable } from "../../shared/outcomes.ts";
import { CloseCode, HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import type { ServerOptions } from "../options.ts";
import type { Credential } from "./credential.ts";
import type { Admitted } from "./hold.ts";
import type { Links, ResumableLink } from "./links.ts";
import type { ClusterTunnels } from "./registry.ts";

/** What a hello is judged by, outside or inside. */

/** The hello's words may only agree with what the credential says (design: "Trust"). */
export function mustAgree(hello: Pick<Hello, "cluster">, { name }: Pick<ClusterTunnels, "name">): void {
  if (hello.cluster === undefined || hello.cluster === name) return;
  throw new LinkRefused({
    closeCode: CloseCode.forbidden,
    reason: `this agent's credential belongs to cluster "${name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
  });
}

export interface ReserveDeps {
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/** A place for a new tunnel, or `LinkRefused`. */
export function reserve(
  { agentId, instance }: Pick<Hello, "agentId" | "instance">,
  { identity }: Credential,
  { cluster, links, draining }: ReserveDeps,
): Admitted {
  if (draining()) throw new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  const candidate = { agentId, instance, identity };
  return { place: cluster.reserve(candidate), entry: links.issue(cluster.name, candidate) };
}

/** What each welcome says. */
export function welcomeWords(
  { id: link }: Pick<ResumableLink, "id">,
  options: Pick<ServerOptions, "serverId" | "keepaliveMs" | "linkGraceMs" | "initialWindow">,
): InnerWelcome {
  const { serverId, keepaliveMs, linkGraceMs: graceMs, initialWindow } = options;
  return { type: "welcome", version: HANDSHAKE_VERSION, serverId, link, keepaliveMs, graceMs, initialWindow };
}
