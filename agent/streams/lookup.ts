import { type Lookup, type LookupDone, lookupAll } from "../../shared/dial/dial-target.ts";

/**
 * A lookup by which dials of the same name at the same time share one question.
 *
 * The system's resolver is right about search domains and /etc/hosts, but it holds one of four threads until it has
 * an answer. A hundred webhook calls while a name server is silent would otherwise hold up every other name, and the
 * certificates that are read by the same threads. Nothing is remembered once the answer is there.
 */
export function sharedLookup(ask: Lookup = lookupAll): Lookup {
  const waiting = new Map<string, LookupDone[]>();
  return (host, done) => {
    const others = waiting.get(host);
    if (others !== undefined) {
      others.push(done);
      return;
    }
    waiting.set(host, [done]);
    ask(host, (error, addresses) => {
      const all = waiting.get(host) ?? [];
      waiting.delete(host);
      for (const each of all) each(error, addresses);
    });
  };
}

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
