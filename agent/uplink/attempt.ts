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
 * One attempt of an uplink: credentials, route → TLS → upgrade → hello → welcome, link, session. Where a middlebox of
 * `--outer-ca` ends TLS, agent and server use inner TLS.
 */
export async function attempt(context: DialContext, owner: ConnectionOwner, signal: AbortSignal): Promise<Connection> {
  const { path } = context;
  const until = performance.now() + context.timeoutMs;
  const credentials = context.credentials.current();
  return await dialTerminators(
    context,
    credentials,
    (terminator) => {
      const terms = { credentials, timeoutMs: Math.max(1, until - performance.now()), signal };
      return terminator === "server"
        ? connectDirectly(context, owner, terms)
        : connectViaMiddlebox(context, owner, terms);
    },
    (terminator) => {
      path.intercepted = terminator === "server";
    },
  );
}

/** Connects by the server's own TLS, with the agent's certificate or token. */
export async function connectDirectly(
  context: DialContext,
  owner: ConnectionOwner,
  terms: DialTerms,
): Promise<Connection> {
  let used = terms.credentials;
  const { hello } = context;
  const { carrier, welcome, remote } = await dial(context, terms, (to) => dialCarrier({ ...to, hello: () => hello }));
  const { graceMs } = welcome;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(context), graceMs });
  const key = LinkKey.parse(welcome.key);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(context, () => used),
    redial: async (words, signal) => {
      const again = resumeTerms(context, graceMs, signal);
      const dialled = await dial(context, again, (to) => {
        const keepaliveMs = Math.min(to.keepaliveMs, welcome.keepaliveMs);
        return dialAgain({
          ...to,
          link: link.id,
          keepaliveMs,
          hello: () => ({ ...hello, resume: key.prove(words()) }),
        });
      });
      used = again.credentials;
      return provenBy(key, link.id, dialled);
    },
  });
}

/** A TLS handshake with the server itself shows that no middlebox opens TLS. */
function dial<T>(context: DialContext, terms: DialTerms, dial: (to: CarrierDialOptions) => Promise<T>): Promise<T> {
  const { path } = context;
  const to = carrierOptions(context, terms);
  const onSecure = (): void => {
    path.intercepted = false;
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return reportToRoute(context, terms, dialServer(watched, context, terms.credentials, dial));
}
