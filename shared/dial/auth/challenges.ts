/** An authentication scheme that a proxy offers (RFC 9110 §11.3). */
export interface Challenge {
  /** In lower case, like the names of the parameters. */
  readonly scheme: string;
  /** The token68 that some schemes have in place of parameters: `Negotiate YII…`. */
  readonly token: string | undefined;
  readonly parameters: ReadonlyMap<string, string>;
}

/** Matching is linear in the input: each pattern reads a run of characters once. */
const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))/y;
/** Without control characters (RFC 9110 §5.6.4), because the value is sent back in a header of ours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: leaving them out is the point.
const QUOTED = /"((?:[^"\\\0-\x08\n-\x1f\x7f]|\\[^\0-\x08\n-\x1f\x7f])*)"/y;
const SPACES = /[ \t]*/y;
const SPACES_AND_COMMAS = /[ \t,]*/y;
const TO_COMMA = /[^,]*/y;

/**
 * The challenges of all `Proxy-Authenticate` fields of an answer, in order. Commas separate both challenges and
 * parameters, so the text behind a comma decides which it is. Malformed parts are skipped, since other challenges may
 * be valid.
 */
export function parseChallenges(fields: readonly string[]): Challenge[] {
  return fields.flatMap((field) => new ChallengeReader(field).read());
}

class ChallengeReader {
  readonly #field: string;
  readonly #challenges: Challenge[] = [];
  #at = 0;
  #parameters: Map<string, string> | undefined;

  constructor(field: string) {
    this.#field = field;
  }

  read(): Challenge[] {
    this.#take(SPACES_AND_COMMAS);
    while (this.#at < this.#field.length) {
      const name = this.#take(TOKEN)?.toLowerCase();
      if (name === undefined) this.#take(TO_COMMA);
      else if (this.#takeEquals()) this.#takeValue(name);
      else this.#begin(name);
      this.#take(SPACES_AND_COMMAS);
    }
    return this.#challenges;
  }

  #begin(scheme: string): void {
    const token = this.#take(TOKEN68);
    this.#parameters = new Map();
    this.#challenges.push({ scheme, token, parameters: this.#parameters });
  }

  /** Of two parameters with one name the first counts. Repetition is invalid, and a later one may be injected. */
  #takeValue(name: string): void {
    const quoted = this.#take(QUOTED);
    const value = quoted === undefined ? this.#take(TOKEN) : quoted.slice(1, -1).replace(/\\(.)/g, "$1");
    if (value === undefined) this.#take(TO_COMMA);
    else if (this.#parameters?.has(name) === false) this.#parameters.set(name, value);
  }

  /** Also reads the spaces before a token68, which may follow a name as well. */
  #takeEquals(): boolean {
    this.#take(SPACES);
    if (this.#field[this.#at] !== "=") return false;
    this.#at++;
    this.#take(SPACES);
    return true;
  }

  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const [taken] = pattern.exec(this.#field) ?? [];
    if (taken !== undefined) this.#at += taken.length;
    return taken;
  }
}
