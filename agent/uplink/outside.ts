import type { Hello } from "../../shared/link/control.ts";
import { type Dialled, dialCarrier, probeServer } from "../../shared/link/dial.ts";
import { Link } from "../../shared/link/link.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import type { Credentials } from "./credentials.ts";
import { ByToken } from "./next-carrier.ts";
import { byWay, carrierTo, connectionOptions, linkOptions, type Reach, resumeMs } from "./reach.ts";

/** The server's own TLS is all there is: certificate or token are shown in it. */
export async function outside(
  reach: Reach,
  owner: ConnectionOwner,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<Connection> {
  let shown = reach.credentials.current();
  const dial = async (words: () => Hello, ms: number, aborted: AbortSignal): Promise<Dialled> => {
    const credentials = reach.credentials.current();
    const dialled = await byWay(reach, aborted, show(credentials, words, reach, ms, aborted));
    shown = credentials;
    return dialled;
  };
  const { carrier, welcome, remote } = await dial(() => reach.hello, timeoutMs, signal);
  const { graceMs } = welcome;
  const link = new Link(welcome.link, remote, carrier, { ...linkOptions(reach), graceMs });
  const proof = new ByToken(reach.hello, welcome.token);
  return new Connection(link, welcome, owner, {
    ...connectionOptions(reach, () => shown),
    redial: async (words, again) => proof.take(await dial(() => proof.hello(words()), resumeMs(reach, graceMs), again)),
  });
}

/**
 * A token is sent when the server's certificate was found good. Our own certificate goes before that can be judged: where
 * somebody may stand between, we look first.
 */
async function show(
  { ca, cert, key, token, outerCa }: Credentials,
  hello: () => Hello,
  reach: Reach,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Dialled> {
  const { path, innerTls } = reach;
  const until = performance.now() + timeoutMs;
  const to = carrierTo(reach, timeoutMs, signal);
  const isDoubtful = outerCa !== undefined || path.intercepted;
  if (cert !== undefined && isDoubtful && innerTls === "auto") {
    await probeServer({ ...to, tls: { ...to.tls, ca } });
    path.intercepted = false;
  }
  return await dialCarrier({
    ...to,
    tls: { ...to.tls, ca, cert, key },
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token.text}` } }),
    hello,
    timeoutMs: Math.max(1, until - performance.now()),
  });
}
