import { type CarrierDialOptions, dialAgain, dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import {
  carrierOptions,
  connectionOptions,
  type DialContext,
  type DialTerms,
  linkOptions,
  reportToRoute,
  resumeTerms,
} from "./dial-context.ts";
import { provenBy } from "./resumption.ts";
import { dialServer, dialTerminators } from "./tls-terminator.ts";
import { connectViaMiddlebox } from "./via-middlebox.ts";

/**
 * One try of an uplink: credentials, way out → TLS → upgrade → hello → welcome, link, session. Somebody who ends TLS on the
 * way, and may, is met by inner TLS.
 */
export async function attempt(reach: DialContext, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = reach;
  const until = performance.now() + reach.timeoutMs;
  const credentials = reach.credentials.current();
  return await dialTerminators(
    reach,
    credentials,
    (end) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      return end === "server" ? connectDirectly(reach, owner, terms) : connectViaMiddlebox(reach, owner, terms);
    },
    (end) => {
      path.intercepted = end === "server";
    },
  );
}

/** The server's own TLS is all there is: certificate or token are shown in it. */
export async function connectDirectly(
  reach: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let shown = terms.credentials;
  const { hello } = reach;
  const { carrier, welcome, remote } = await dial(reach, terms, (to) => dialCarrier({ ...to, hello: () => hello }));
  const { graceMs } = welcome;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(reach), graceMs });
  const key = LinkKey.parse(welcome.key);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(reach, () => shown),
    redial: async (words, signal) => {
      const again = resumeTerms(reach, graceMs, signal);
      const dialled = await dial(reach, again, (to) => {
        const keepaliveMs = Math.min(to.keepaliveMs, welcome.keepaliveMs);
        return dialAgain({ ...to, keepaliveMs, hello: () => ({ ...hello, resume: key.prove(words()) }) });
      });
      shown = again.credentials;
      return provenBy(key, link.id, dialled);
    },
  });
}

/** Once TLS with the server stands, nobody is in between. */
function dial<T>(reach: DialContext, terms: DialTerms, dial: (to: CarrierDialOptions) => Promise<T>): Promise<T> {
  const { path } = reach;
  const to = carrierOptions(reach, terms);
  const onSecure = (): void => {
    path.intercepted = false;
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return reportToRoute(reach, terms, dialServer(watched, reach, terms.credentials, dial));
}
