import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http";

/** Fields of one connection (RFC 9110 §7.6.1), and those that a client sends to this proxy alone. */
const OF_CONNECTION = [
  "connection",
  "proxy-connection",
  "keep-alive",
  "te",
  "transfer-encoding",
  "upgrade",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-authentication-info",
];
/** Fields that `Connection` cannot remove: they decide how a message is framed and where it goes. */
const NEVER_REMOVED = ["content-length", "host"];
const NAME = "culvert";

/** A message, as `node:http` reads it. */
interface Message {
  readonly headers: IncomingHttpHeaders;
  readonly headersDistinct: Readonly<Record<string, string[] | undefined>>;
  readonly httpVersion: string;
}

/** The fields of a message that are passed on, with `Via` (RFC 9110 §7.6.3). */
export function forwardedFields({ headers, headersDistinct, httpVersion }: Message): OutgoingHttpHeaders {
  const named = (headers.connection ?? "").toLowerCase().split(",");
  const removed = new Set([...OF_CONNECTION, ...named.map((name) => name.trim())]);
  for (const name of NEVER_REMOVED) removed.delete(name);
  const fields: OutgoingHttpHeaders = {};
  for (const [name, values = []] of Object.entries(headersDistinct)) {
    if (!removed.has(name)) fields[name] = values.length === 1 ? values[0] : values;
  }
  fields["via"] = [...(headersDistinct["via"] ?? []), `${httpVersion} ${NAME}`].join(", ");
  return fields;
}
