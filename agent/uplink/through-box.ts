import type { Carrier } from "../../shared/link/carrier.ts";
import type { OuterHello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialOuter, type OuterDialled } from "../../shared/link/dial.ts";
import { TappedLink } from "../../shared/link/tapped-link.ts";
import { HANDSHAKE_VERSION } from "../../shared/wire/handshake.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import type { Credentials } from "./credentials.ts";
import { greetInside, type Inside } from "./inside.ts";
import { ByKey } from "./next-carrier.ts";
import { anyCa, byWay, carrierTo, connectionOptions, linkOptions, type Reach, resumeMs } from "./reach.ts";

/** The TLS outside may end in between: nothing is shown in it, and all in the inner TLS over the link. */
export async function throughBox(
  reach: Reach,
  owner: ConnectionOwner,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Connection> {
  let shown = reach.credentials.current();
  // Whoever is known by --ca-cert alone is the server itself, and needs no inner TLS, unless that is wanted always.
  const outerCa = reach.innerTls === "always" ? anyCa(shown) : [...(shown.outerCa ?? [])];
  const { link, carrier, pipe, key, answer } = await meet(reach, shown, { outerCa, timeoutMs, signal });
  if (answer.type !== "welcome") {
    link.destroy();
    throw new Error("the server has not welcomed us inside the inner TLS");
  }
  const { graceMs } = answer;
  const keepaliveMs = (): number => Math.min(reach.path.keepaliveMs, answer.keepaliveMs);
  link.settle(answer.link, graceMs);
  carrier.setKeepalive(keepaliveMs());
  const proof = new ByKey(key);
  return new Connection(link, answer, owner, {
    ...connectionOptions(reach, () => shown),
    pipe,
    prove: async (again) => {
      const credentials = reach.credentials.current();
      const how = { outerCa: anyCa(credentials), timeoutMs: resumeMs(reach, graceMs), signal: again };
      const met = await meet(reach, credentials, how, link.id);
      met.pipe.end();
      if (met.answer.type !== "renewed") throw new Error("the server has not taken the proof of who we are");
      shown = credentials;
    },
    redial: async (words, again) => {
      const how = { outerCa: anyCa(reach.credentials.current()), timeoutMs: resumeMs(reach, graceMs), signal: again };
      return proof.take(await dialBare(reach, () => proof.hello(words()), how, keepaliveMs()), link.id);
    },
  });
}

interface How {
  /** Who may end the TLS outside. */
  readonly outerCa: CarrierDialOptions["tls"]["ca"];
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What the server has answered inside, and on what. */
interface Met extends Inside {
  readonly link: TappedLink;
  readonly carrier: Carrier;
}

/** A carrier, inner TLS on it, and the first words. */
async function meet(reach: Reach, credentials: Credentials, how: How, renews?: string): Promise<Met> {
  const { server, hello } = reach;
  const { timeoutMs, signal } = how;
  const until = performance.now() + timeoutMs;
  const words = { type: "hello", version: HANDSHAKE_VERSION, inner: true } as const;
  const { carrier, remote } = await dialBare(reach, () => words, how);
  const link = new TappedLink(remote, carrier, linkOptions(reach));
  const inside = await greetInside(link, {
    ...{ host: server.host, hello, credentials, signal },
    timeoutMs: Math.max(1, until - performance.now()),
    ...(renews !== undefined && { renews }),
  });
  return { ...inside, link, carrier };
}

/** Neither certificate nor token goes along. */
async function dialBare(
  reach: Reach,
  hello: () => OuterHello,
  { outerCa: ca, timeoutMs, signal }: How,
  keepaliveMs = reach.path.keepaliveMs,
): Promise<OuterDialled> {
  const to = carrierTo(reach, timeoutMs, signal);
  return await byWay(reach, signal, dialOuter({ ...to, keepaliveMs, tls: { ...to.tls, ca }, hello }));
}
