/** Characters by which a secret is known: a text that was cut may hold no more of it. */
const TELLTALE = 8;
/** What no way of writing a text changes, while signs between may be escaped. */
const RUN = new RegExp(`[A-Za-z0-9]{${TELLTALE},}`, "g");

/** Does a text from outside hold this secret, or a part of it that begins at its beginning or behind a sign in it? */
export function repeats(text: string, secret: string): boolean {
  if (secret === "") return false;
  const parts = [secret, ...(secret.match(RUN) ?? [])];
  return parts.some((part) => text.includes(part.slice(0, TELLTALE)));
}
