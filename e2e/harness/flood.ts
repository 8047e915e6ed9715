import { fileURLToPath } from "node:url";
import { RUN_SOURCES, source } from "../../shared/runtime/testing/project.ts";
import { ManagedProcess } from "./processes.ts";
import { started } from "./started.ts";

/** Counters of a flood, as it reports them: connections opened, answers, ends, whatever it counts. */
type FloodCounts = Readonly<Record<string, number | string>>;

/**
 * Hostile traffic from a process of its own with the lowest priority, so that it takes no time from those that are
 * measured unless the server gives it away. It ends by itself after its time.
 */
export class Flood implements AsyncDisposable {
  readonly process: ManagedProcess;

  constructor(name: string, args: object) {
    const script = fileURLToPath(source(`floods/${name}.ts`, import.meta.url));
    this.process = new ManagedProcess(`flood ${name}`, script, [JSON.stringify(args)], {
      nodeArgs: RUN_SOURCES,
    });
  }

  /** The newest report. */
  get counts(): FloodCounts {
    const line = this.process.log.findLast((each) => each.startsWith("{"));
    return line === undefined ? {} : JSON.parse(line);
  }

  /** Ends it, and resolves with its last report. */
  async stop(): Promise<FloodCounts> {
    await this.process.stop();
    return this.counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.process[Symbol.asyncDispose]();
  }
}

/** Starts `floods/NAME.ts` with these arguments; resolves when it has begun. */
export function startFlood(name: string, args: object): Promise<Flood> {
  return started(new Flood(name, args), (flood) => flood.process.waitForLog("flooding", 20_000));
}
