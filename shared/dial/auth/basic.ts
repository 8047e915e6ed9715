import type { Authorization, Credentials, Scheme } from "./scheme.ts";

/** Basic (RFC 7617), always in UTF-8: whoever asks for another character set has no way to say so. */
export class Basic implements Scheme {
  readonly name = "Basic";
  readonly #credentials: Credentials;

  constructor(credentials: Credentials) {
    this.#credentials = credentials;
  }

  async authorize(): Promise<Authorization> {
    const { user, password } = this.#credentials;
    const secret = Buffer.from(`${user}:${password}`, "utf8").toString("base64");
    return { value: `Basic ${secret}`, secret };
  }

  goesOn(): undefined {
    return undefined;
  }
}
