import { once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { wellKnownAuthorities } from "../tls/authorities.ts";

/** As browsers have it: a server that leads in circles is broken. */
const MAX_REDIRECTS = 5;

type ListAuthorities = (() => readonly string[] | undefined) | undefined;

/** The server gave no script. The message continues "the PAC script". */
export class NotServed extends Error {}

/**
 * What a server has to say to a GET, redirects followed; directly, because who fetches the script knows no proxy yet.
 * Node's `fetch` could not be told of the company's CAs, which `ca` names beside the well-known ones.
 */
export async function get(
  url: URL,
  { ca, signal }: { readonly ca: ListAuthorities; readonly signal: AbortSignal },
): Promise<IncomingMessage> {
  let at = url;
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const response = await ask(at, ca, signal);
    const { statusCode = 0, headers } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    response.destroy();
    if (statusCode < 300 || statusCode >= 400 || headers.location === undefined)
      throw new NotServed(`its server answered ${statusCode}`);
    at = redirected(at, headers.location);
  }
  throw new NotServed(`its server redirects more than ${MAX_REDIRECTS} times`);
}

async function ask(url: URL, listed: ListAuthorities, signal: AbortSignal): Promise<IncomingMessage> {
  const ca = url.protocol === "https:" ? listed?.() : undefined;
  const options = { agent: false, signal, headers: { "accept-encoding": "identity", "user-agent": "culvert" } };
  const request =
    url.protocol === "https:"
      ? https.get(url, {
          ...options,
          // Said aloud, as for proxies: who forges a script chooses the proxy.
          rejectUnauthorized: true,
          ...(ca === undefined ? {} : { ca: [...wellKnownAuthorities(), ...ca] }),
        })
      : http.get(url, options);
  const [response] = (await once(request, "response")) as [IncomingMessage];
  // Its end is seen by whoever reads it.
  request.on("error", () => {});
  return response;
}

/** Who asked over TLS must not be led to a script that anybody can change. */
function redirected(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href)) throw new NotServed("its server redirects to what is no URL");
  const to = new URL(location, from);
  const allowed = from.protocol === "https:" ? ["https:"] : ["http:", "https:"];
  if (!allowed.includes(to.protocol))
    throw new NotServed(`its server redirects from ${from.protocol} to ${to.protocol}`);
  return to;
}
