/** One way to authenticate that a proxy offers (RFC 9110 §11.3). */
export interface Challenge {
  /** In lower case, as are the names of the parameters. */
  readonly scheme: string;
  /** What schemes that speak in tokens say in place of parameters: `Negotiate YII…`. */
  readonly token: string | undefined;
  readonly parameters: ReadonlyMap<string, string>;
}

/** Linear on any input: a run is looked at by each pattern once, and those that begin a match never overlap. */
const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))/y;
/** Without control characters (RFC 9110 §5.6.4): what is read here goes back to the proxy in a header of ours. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: leaving them out is the point.
const QUOTED = /"((?:[^"\\\0-\x08\n-\x1f\x7f]|\\[^\0-\x08\n-\x1f\x7f])*)"/y;
const SPACES = /[ \t]*/y;
const SPACES_AND_COMMAS = /[ \t,]*/y;
const TO_COMMA = /[^,]*/y;

/**
 * The challenges of all `Proxy-Authenticate` fields of an answer, in their order. Commas part challenges and parameters
 * alike, so what follows one decides what it was. What nobody can read is left out: another challenge may be well-formed.
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

  /** The first of two parameters of a name counts: they must not repeat, and a later one may be smuggled in. */
  #takeValue(name: string): void {
    const quoted = this.#take(QUOTED);
    const value = quoted === undefined ? this.#take(TOKEN) : quoted.slice(1, -1).replace(/\\(.)/g, "$1");
    if (value === undefined) this.#take(TO_COMMA);
    else if (this.#parameters?.has(name) === false) this.#parameters.set(name, value);
  }

  /** Also takes the spaces before a token68, which is the other thing that may follow a name. */
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
