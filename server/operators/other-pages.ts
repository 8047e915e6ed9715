import { get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import * as z from "zod";
import { parseTarget, type Target } from "../../shared/address/target.ts";
import { jsonOf } from "../../shared/basics/text.ts";
import { connectTcp } from "../../shared/net/connect-tcp.ts";
import { printable } from "../../shared/outcomes.ts";
import type { OtherServerFact } from "./facts.ts";

/** The others are asked once in this time while somebody looks, ms. */
const EVERY_MS = 5_000;
const WITHIN_MS = 3_000;
/** Of an answer: 40 bytes for each cluster that has agents. */
const MAX_BYTES = 4 * 1024 * 1024;

const summarySchema = z.object({
  serverId: z.string(),
  instance: z.string(),
  version: z.string(),
  draining: z.boolean(),
  clusters: z.number(),
  agents: z.number(),
  open: z.number(),
  bytesPerSecond: z.number(),
  /** Agents by cluster, of those that have some. */
  agentsOf: z.record(z.string(), z.number()),
});
/** The facts that a server gives to the pages of the others, at `/ui/summary`. */
export type Summary = z.infer<typeof summarySchema>;

/** The other servers of `--admin-peers`, asked while somebody looks at the page. */
export class OtherPages {
  readonly #instance: string;
  readonly #targets: readonly { readonly address: string; readonly target: Target }[];
  readonly #answers = new Map<string, Summary | { readonly problem: string }>();
  #askedAt = Number.NEGATIVE_INFINITY;

  /** `instance`: of this server, which may be among the addresses. */
  constructor(addresses: readonly string[], instance: string) {
    this.#instance = instance;
    this.#targets = addresses.map((address) => ({ address, target: parseTarget(address) }));
  }

  /** The last answers of the other servers. The next ones come later. */
  facts(now = performance.now()): OtherServerFact[] {
    if (now - this.#askedAt >= EVERY_MS) {
      this.#askedAt = now;
      for (const { address, target } of this.#targets) void this.#ask(address, target);
    }
    return this.#others().map(([address, answer]) => {
      if ("problem" in answer) return { address, problem: answer.problem };
      const { agentsOf: _, instance: __, ...shown } = answer;
      return { address, ...shown };
    });
  }

  /** The other servers that have agents of this cluster. */
  withAgentsOf(cluster: string): { readonly serverId: string; readonly agents: number }[] {
    return this.#others().flatMap(([, answer]) => {
      const agents = "problem" in answer ? 0 : (answer.agentsOf[cluster] ?? 0);
      return "problem" in answer || agents === 0 ? [] : { serverId: answer.serverId, agents };
    });
  }

  #others() {
    return [...this.#answers].filter(([, answer]) => "problem" in answer || answer.instance !== this.#instance);
  }

  async #ask(address: string, target: Target): Promise<void> {
    try {
      this.#answers.set(address, await summaryOf(target, AbortSignal.timeout(WITHIN_MS)));
    } catch (error) {
      this.#answers.set(address, { problem: printable((error as Error).message) });
    }
  }
}

async function summaryOf({ host, port }: Target, signal: AbortSignal): Promise<Summary> {
  const socket = await connectTcp({ host, port }, signal);
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const asking = get({ host, port, path: "/ui/summary", signal, createConnection: () => socket }, resolve);
    asking.on("error", reject);
  });
  if (response.statusCode !== 200) {
    response.destroy();
    throw new Error(`HTTP ${response.statusCode} for /ui/summary${CURES[response.statusCode ?? 0] ?? ""}`);
  }
  let bytes = 0;
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) response.destroy(new Error(`the answer is larger than ${MAX_BYTES} bytes`));
  });
  const { data } = summarySchema.safeParse(jsonOf(await text(response)));
  if (data === undefined) throw new Error("its answer has another form: is it a server of another version?");
  return data;
}

const CURES: Readonly<Record<number, string>> = {
  404: ": is that the admin port of a server, with --admin-ui?",
  421: ": give the name in --admin-allowed-hosts there",
};
