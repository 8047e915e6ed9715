import type { YAMLError } from "yaml";

type Fault = Pick<YAMLError, "code" | "message">;

/** What is wrong with the syntax of a text, where, and what to do: the parser speaks of it in words of the YAML specification. */
export function syntaxFault({ code, message }: Fault, place = ""): string {
  const words = message.replace(/closing (["'])quote/, "closing $1");
  const cure = message.startsWith("Implicit") ? KEY_CURE : CURES[code]; // two codes
  return `${words}${place}${cure === undefined ? "" : `: ${cure}`}.`;
}

const KEY_CURE = 'write "key: value" with a colon and a space, and close what a quote has opened';

/** Where the parser's words do not say it themselves. */
const CURES: Partial<Record<YAMLError["code"], string>> = {
  BAD_ALIAS: "put what begins with * or & in quotes",
  BAD_INDENT: "indent it as its neighbours, and close what [ or { has opened",
  BAD_SCALAR_START: "put it in quotes",
  BLOCK_AS_IMPLICIT_KEY: 'indent it as its neighbours, and put a text with ": " in it in quotes',
  TAB_AS_INDENT: "write spaces",
  UNEXPECTED_TOKEN: "take it away, or put what belongs together in quotes",
};
