import { setMaxListeners } from "node:events";
import type { Program } from "../harness/program.ts";
import type { Check, Row, Seen, Stage } from "./check.ts";
import { rowLine } from "./report.ts";
import type { KubeApiserver } from "./world/control-plane.ts";
import type { Lane } from "./world/lanes.ts";
import type { World } from "./world/world.ts";

/** Where checks are run: a world whose kube-apiserver goes along one lane. */
export class Runner {
  readonly #world: World;
  readonly #lane: Lane;
  readonly #kubeApiserver: KubeApiserver;
  readonly #repeat: number;
  readonly rows: Row[] = [];

  constructor(world: World, lane: Lane, kubeApiserver: KubeApiserver, repeat: number) {
    this.#world = world;
    this.#lane = lane;
    this.#kubeApiserver = kubeApiserver;
    this.#repeat = repeat;
  }

  /** One after another, and beside them those that mostly wait; the rows keep the checks' order. */
  async run(checks: readonly Check[]): Promise<void> {
    const mine = checks.filter(({ lanes }) => lanes?.includes(this.#lane) ?? true);
    const beside = mine.map((check) => (check.beside ? this.#one(check) : undefined));
    const rows: (Row | Promise<Row>)[] = [];
    for (const [i, check] of mine.entries()) rows.push(beside[i] ?? (await this.#one(check)));
    this.rows.push(...(await Promise.all(rows)));
  }

  /** Never rejects: what is wrong is in the row. */
  async #one(check: Check): Promise<Row> {
    const row = await this.#rowOf(check);
    console.log(rowLine(row));
    if (row.failure !== undefined) console.error(this.#logs());
    return row;
  }

  async #rowOf(check: Check): Promise<Row> {
    const started = performance.now();
    const { name, goal, trouble } = check;
    const row = { check: name, lane: this.#lane, goal, trouble };
    try {
      const [first, ...others] = await this.#severalTimes(check);
      const seen = [first, ...others].sort((a, b) => costOf(a) - costOf(b))[others.length >> 1] ?? first;
      return { ...row, seconds: secondsSince(started), ...seen };
    } catch (error) {
      const failure = error instanceof Error ? error.message : String(error);
      return { ...row, seconds: secondsSince(started), printed: "", failure };
    }
  }

  /** Figures that are compared are measured several times. */
  async #severalTimes(check: Check): Promise<[SeenAndDials, ...SeenAndDials[]]> {
    const first = await this.#counted(check);
    const others: SeenAndDials[] = [];
    while (check.goal !== undefined && others.length < this.#repeat - 1) others.push(await this.#counted(check));
    return [first, ...others];
  }

  async #counted(check: Check): Promise<SeenAndDials> {
    const before = await this.#dials();
    const { printed, ...seen } = await this.#bounded(check);
    const after = await this.#dials();
    const comparable = check.beside === undefined && before?.server === after?.server;
    const dials = comparable && before && after ? after.count - before.count : undefined;
    // Where the socket is for this run only says nothing.
    return { ...seen, printed: printed.replaceAll(this.#world.dir.path, "…"), dials };
  }

  /** At the deadline everything that the check runs is killed. */
  async #bounded(check: Check): Promise<Seen> {
    const signal = AbortSignal.timeout(check.deadlineMs);
    setMaxListeners(0, signal); // as many as a check runs commands
    const { program, kubectl } = this.#kubeApiserver;
    const here = { world: this.#world, lane: this.#lane, kubeApiserver: program };
    const stage: Stage = { ...here, kubectl: kubectl.until(signal), signal };
    const late = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(new Error(`not within ${check.deadlineMs} ms`)));
    });
    return await Promise.race([check.run(stage), late]);
  }

  /** CONNECTs that the server of now has answered with 200. */
  async #dials(): Promise<{ readonly server: Program; readonly count: number } | undefined> {
    const { culvert } = this.#world;
    if (!culvert.serverRuns) return undefined;
    const server = culvert.server;
    const scrape = await culvert.scrapeServer();
    return { server, count: scrape.value("culvert_server_dial_duration_seconds_count", { outcome: "ok" }) };
  }

  #logs(): string {
    return this.#world.programs.map((program) => `── ${program.name}\n${program.tail(15)}`).join("\n");
  }
}

type SeenAndDials = Seen & Pick<Row, "dials">;

function costOf({ p50Ms, seconds = 0 }: Seen): number {
  return p50Ms ?? seconds;
}

function secondsSince(started: number): number {
  return (performance.now() - started) / 1000;
}
