import type { Lookup } from "../../shared/dial/dial-target.ts";
import { sharedLookup } from "./resolve.ts";

/** A lookup that says how long it took, for a server that asks. */
export class TimedLookup {
  /** 0 until a name was asked for. */
  tookMs = 0;
  readonly lookup: Lookup;

  constructor(lookup: Lookup = sharedLookup()) {
    this.lookup = (host, done) => {
      const askedAt = performance.now();
      lookup(host, (error, addresses) => {
        this.tookMs = performance.now() - askedAt;
        done(error, addresses);
      });
    };
  }
}
