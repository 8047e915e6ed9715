import { bracketed, type Target } from "../address/target.ts";
import { printable } from "../outcomes.ts";
import { parsePacResult } from "./pac-result.ts";
import { evaluatePac } from "./pac-sandbox.ts";
import { type PacReading, type PacSource, pacFault, pacSource } from "./pac-source.ts";
import type { ProxyRoute } from "./proxy-route.ts";

/** More than a script has ever needed; what a name server does not answer within it, nobody waits for. */
const TIMEOUT_MS = 2_000;

/** `--pac`: a script that is asked for the ways to each destination (proxy auto-configuration, as browsers have it). */
export class Pac {
  readonly #source: PacSource;

  /** Throws an Error whose message continues "--pac". */
  constructor(location: string) {
    this.#source = pacSource(location);
  }

  /** Rejects with a `RouteFault`. */
  async ways(to: Target, signal: AbortSignal, reading: PacReading = {}): Promise<readonly ProxyRoute[]> {
    const { name, isFetchedInClear: isNamedInClear } = this.#source;
    const script = await this.#source.read(signal, reading);
    const question = { script, url: urlOf(to), host: to.host, timeoutMs: TIMEOUT_MS };
    const answer = await evaluatePac(question, signal).catch((error: Error) => {
      throw pacFault(name, error.message);
    });
    const ways = parsePacResult(answer, { from: `PAC ${name}`, isNamedInClear });
    if (ways === undefined) throw pacFault(name, `names no way that we know: "${printable(answer, 80)}"`);
    return ways;
  }
}

/** Scripts know http and https; a browser, too, shows them nothing of the path behind TLS. */
function urlOf({ host, port }: Target): string {
  return new URL(`https://${bracketed(host)}:${port}/`).href;
}
