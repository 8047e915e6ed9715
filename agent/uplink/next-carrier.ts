import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello } from "../../shared/link/control.ts";
import type { Dialled, OuterDialled } from "../../shared/link/dial.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { HANDSHAKE_VERSION } from "../../shared/wire/handshake.ts";

/** Where a link is to go on: what a hello says of it, beside what proves that it is ours. */
export interface ResumeWords {
  readonly link: string;
  /** What we have of it. */
  readonly received: number;
}

/** A carrier on which the server goes on with a link. */
export interface NextCarrier {
  readonly carrier: Carrier;
  readonly remote: string;
  /** Which link it says it is. */
  readonly link: string;
  /** What the server has of it. */
  readonly received: number;
}

/** A token proves it, which each welcome renews. */
export class ByToken {
  readonly #hello: Hello;
  #token: string;

  constructor(hello: Hello, token: string) {
    this.#hello = hello;
    this.#token = token;
  }

  hello(words: ResumeWords): Hello {
    return { ...this.#hello, resume: { ...words, token: this.#token } };
  }

  take({ carrier, remote, welcome: { link, received, token } }: Dialled): NextCarrier {
    this.#token = token;
    return { carrier, remote, link, received };
  }
}

/** The key of the inner TLS proves it, which nobody in between has. */
export class ByKey {
  readonly #key: LinkKey;

  constructor(key: LinkKey) {
    this.#key = key;
  }

  hello({ link, received }: ResumeWords): OuterHello {
    return { type: "hello", version: HANDSHAKE_VERSION, inner: true, resume: this.#key.prove(link, received) };
  }

  /** Throws a sentence when it was not the server that answered. */
  take({ carrier, remote, resumed }: OuterDialled, link: string): NextCarrier {
    if (resumed === undefined || !this.#key.isAnswer(link, resumed)) {
      carrier.destroy();
      throw new Error("somebody in between has answered in the server's place");
    }
    return { carrier, remote, link, received: resumed.received };
  }
}
