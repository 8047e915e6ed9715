import type { Carrier } from "../../shared/link/carrier.ts";
import type { OuterHello } from "../../shared/link/control.ts";
import { type CarrierDialOptions, dialAgain, OUTER_HELLO } from "../../shared/link/dial.ts";
import { TappedLink } from "../../shared/link/tapped-link.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { greetInside, type Inside } from "./inside.ts";
import { anyCa, boxCa, dialBox } from "./outer-end.ts";
import { byWay, carrierTo, connectionOptions, linkOptions, type Reach, resumeTerms, type Terms } from "./reach.ts";
import { provenBy } from "./resumption.ts";

/** The TLS outside may end in between: nothing is shown in it, and all in the inner TLS over the link. */
export async function throughBox(reach: Reach, owner: ConnectionOwner, terms: Terms): Promise<Connection> {
  let shown = terms.credentials;
  const { link, carrier, pipe, key, answer } = await meet(reach, terms, boxCa(reach, shown));
  if (answer.type !== "welcome") {
    link.destroy();
    throw new Error("the server has not welcomed us inside the inner TLS");
  }
  const { graceMs } = answer;
  const keepaliveMs = (): number => Math.min(reach.path.keepaliveMs, answer.keepaliveMs);
  link.settle(answer.link, graceMs);
  carrier.setKeepalive(keepaliveMs());
  return new Connection(link, answer, owner, {
    ...connectionOptions(reach, () => shown),
    pipe,
    prove: async (signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const met = await meet(reach, again, anyCa(again.credentials), link.id);
      met.pipe.end();
      if (met.answer.type !== "renewed") throw new Error("the server has not taken the proof of who we are");
      shown = again.credentials;
    },
    redial: async (words, signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const tls = { ...carrierTo(reach, again).tls, ca: anyCa(again.credentials) };
      const hello = (): OuterHello => ({ ...OUTER_HELLO, resume: key.prove(words()) });
      const to = { ...carrierTo(reach, again), tls, hello, keepaliveMs: keepaliveMs() };
      return provenBy(key, link.id, await byWay(reach, again, dialAgain(to)));
    },
  });
}

/** Who may end the TLS outside. */
type OuterCa = CarrierDialOptions["tls"]["ca"];

/** What the server has answered inside, and on what. */
interface Met extends Inside {
  readonly link: TappedLink;
  readonly carrier: Carrier;
}

/** A carrier, inner TLS on it, and the first words. */
async function meet(reach: Reach, terms: Terms, ca: OuterCa, renews?: string): Promise<Met> {
  const { server, hello } = reach;
  const { timeoutMs } = terms;
  const until = performance.now() + timeoutMs;
  const { carrier, remote } = await byWay(reach, terms, dialBox(carrierTo(reach, terms), ca));
  const link = new TappedLink(remote, carrier, linkOptions(reach));
  const inside = await greetInside(link, {
    ...terms,
    ...{ host: server.host, hello },
    timeoutMs: Math.max(1, until - performance.now()),
    ...(renews !== undefined && { renews }),
  });
  return { ...inside, link, carrier };
}
