import type { Hello } from "../../shared/link/control.ts";
import type { Dialled } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import {
  byWay,
  carrierTo,
  connectionOptions,
  linkOptions,
  type Reach,
  resumeTerms,
  type Terms,
} from "./dial-context.ts";
import { ByToken } from "./next-carrier.ts";
import { dialEnds, dialServer } from "./tls-terminator.ts";
import { throughBox } from "./via-middlebox.ts";

/**
 * One try of an uplink: credentials, way out → TLS → upgrade → hello → welcome, link, session. Somebody who ends TLS on the
 * way, and may, is met by inner TLS.
 */
export async function attempt(reach: Reach, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = reach;
  const until = performance.now() + reach.timeoutMs;
  const credentials = reach.credentials.current();
  return await dialEnds(
    reach,
    credentials,
    (end) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      return end === "server" ? outside(reach, owner, terms) : throughBox(reach, owner, terms);
    },
    (end) => {
      path.intercepted = end === "server";
    },
  );
}

/** The server's own TLS is all there is: certificate or token are shown in it. */
export async function outside(reach: Reach, owner: ConnectionOwner, terms: Terms): Promise<Connection> {
  let shown = terms.credentials;
  const { carrier, welcome, remote } = await dial(reach, terms, () => reach.hello);
  const { graceMs } = welcome;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(reach), graceMs });
  const proof = new ByToken(reach.hello, welcome.token);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(reach, () => shown),
    redial: async (words, signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const dialled = await dial(reach, again, () => proof.hello(words()));
      shown = again.credentials;
      return proof.take(dialled);
    },
  });
}

/** Once TLS with the server stands, nobody is in between. */
function dial(reach: Reach, terms: Terms, hello: () => Hello): Promise<Dialled> {
  const { path } = reach;
  const to = carrierTo(reach, terms);
  const onSecure = (): void => {
    path.intercepted = false;
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return byWay(reach, terms, dialServer(watched, reach, terms.credentials, hello));
}
