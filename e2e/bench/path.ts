import { type FaultRelay, startRelay } from "../harness/faults.ts";
import { type SlowLine, type SlowLineOptions, startSlowLine } from "../harness/slow-line.ts";
import { serve } from "./child.ts";

/** A process that is a path with a length, or with a narrow place, in front of a port on this machine. */
const held: (FaultRelay | SlowLine)[] = [];

interface LongParams {
  readonly port: number;
  readonly rttMs: number;
}

/** Holds every byte for half the round trip and limits nothing. */
async function long({ port, rttMs }: LongParams): Promise<{ port: number }> {
  const relay = await startRelay({ host: "127.0.0.1", port });
  relay.delay(rttMs / 2);
  held.push(relay);
  return { port: relay.port };
}

/** A slow uplink. */
async function slow({ port, ...options }: SlowLineOptions & { readonly port: number }): Promise<{ port: number }> {
  const line = await startSlowLine({ host: "127.0.0.1", port }, options);
  held.push(line);
  return { port: line.port };
}

const methods = { long, slow };
export type PathMethods = typeof methods;
serve(methods);
