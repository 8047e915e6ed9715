import { type CarrierDialOptions, dialAgain, dialCarrier } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { LinkKey } from "../../shared/link/proof.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { dialServer } from "./outer-end.ts";
import { byWay, carrierTo, connectionOptions, linkOptions, type Reach, resumeTerms, type Terms } from "./reach.ts";
import { provenBy } from "./resumption.ts";

/** The server's own TLS is all there is: certificate or token are shown in it. */
export async function outside(reach: Reach, owner: ConnectionOwner, terms: Terms): Promise<Connection> {
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
      const resumes = () => ({ ...hello, resume: key.prove(words()) });
      const dialled = await dial(reach, again, (to) => dialAgain({ ...to, hello: resumes }));
      shown = again.credentials;
      return provenBy(key, link.id, dialled);
    },
  });
}

/** Once TLS with the server stands, nobody is in between. */
function dial<T>(reach: Reach, terms: Terms, dial: (to: CarrierDialOptions) => Promise<T>): Promise<T> {
  const { path } = reach;
  const to = carrierTo(reach, terms);
  const onSecure = (): void => {
    path.intercepted = false;
  };
  const watched = { ...to, watch: { ...to.watch, onSecure } };
  return byWay(reach, terms, dialServer(watched, reach, terms.credentials, dial));
}
