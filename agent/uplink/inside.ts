import type { Hello } from "../../shared/link/control.ts";
import { type InnerHello, type InnerWelcome, parseInnerAnswer, type Renewed } from "../../shared/link/inner-hello.ts";
import type { InnerPipe } from "../../shared/link/inner-pipe.ts";
import { dialInner } from "../../shared/link/inner-tls.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import type { Credentials } from "./credentials.ts";

export interface InsideOptions {
  /** The server's name. */
  readonly host: string;
  readonly hello: Omit<Hello, "resume">;
  readonly credentials: Credentials;
  /** A link that is there already, whose agent we only prove to be. */
  readonly renews?: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** What the server has answered inside. */
export interface Inside {
  readonly pipe: InnerPipe;
  readonly key: LinkKey;
  readonly answer: InnerWelcome | Renewed;
}

/**
 * Inner TLS over a link whose carrier ends its TLS in between, and the first words in it (design: "Handshake"): here is
 * where certificate and token are shown. Rejects with `LinkRefused` or a sentence, and ends the link.
 */
export async function greetInside(link: Link, options: InsideOptions): Promise<Inside> {
  const { host, credentials, timeoutMs, signal } = options;
  const { ca, cert, key } = credentials;
  const until = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(timeoutMs))]);
  const { pipe, key: linkKey } = await dialInner(link, { host, tls: { ca, cert, key }, timeoutMs, signal });
  return { pipe, key: linkKey, answer: await sayHello(pipe, options, until) };
}

/** The first words, once inner TLS stands. Rejects as `greetInside` does. */
export async function sayHello(
  pipe: InnerPipe,
  { hello, credentials: { token }, renews }: Pick<InsideOptions, "hello" | "credentials" | "renews">,
  until: AbortSignal,
): Promise<InnerWelcome | Renewed> {
  const onLate = (): void => pipe.destroy(new Error("no welcome came inside the inner TLS"));
  until.addEventListener("abort", onLate, { once: true });
  if (until.aborted) onLate();
  const words: InnerHello = {
    ...hello,
    ...(token && { bearer: token.text }),
    ...(renews !== undefined && { renews }),
  };
  try {
    pipe.sendWords(words);
    return parseInnerAnswer(await pipe.readWords());
  } catch (error) {
    pipe.destroy(error as Error);
    throw error;
  } finally {
    until.removeEventListener("abort", onLate);
  }
}
