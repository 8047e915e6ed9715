import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { pino } from "pino";
import { parseTarget } from "../../shared/address/target.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { LinkServer, testCertificate } from "../../shared/link/testing/ends.ts";
import { encodeOpen } from "../../shared/wire/stream-head.ts";
import type { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type Agent, startAgent } from "../agent.ts";
import { type AgentOptions, agentOptions } from "../context/options.ts";

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [key: string]: unknown;
}

/** A stream of a server, to this target. */
export function open(session: Session, target: string): Stream {
  const stream = session.open(encodeOpen({ kind: "connect", target: parseTarget(target), timeoutMs: 2_000, id: "c" }));
  return stream.on("error", () => {});
}

/** A server that takes tunnels, an agent's options for it, and how to start that agent with a log that is kept. */
export async function prepared(
  t: TestContext,
  change: Partial<AgentOptions> = {},
  env: Readonly<Record<string, string>> = {},
  given?: LinkServer,
) {
  const server = given ?? (await LinkServer.start());
  t.after(() => server[Symbol.asyncDispose]());
  const dir = await mkdtemp(join(tmpdir(), "culvert-"));
  t.after(() => rm(dir, { recursive: true }));
  const caCert = join(dir, "ca.crt");
  await writeFile(caCert, (await testCertificate()).ca);
  const options: AgentOptions = {
    ...defaultsOf(agentOptions),
    allowLoopback: true,
    server: [`wss://localhost:${server.port}`],
    serverAddress: "127.0.0.1",
    caCert,
    agentId: "a1",
    healthServerHost: "127.0.0.1",
    healthServerPort: 0,
    adminServerPort: 0,
    ...change,
  };
  const texts: string[] = [];
  const lines: LogLine[] = [];
  const keep = (line: string): void => {
    texts.push(line);
    lines.push(JSON.parse(line));
  };
  const log = pino({ level: "trace" }, { write: keep });
  const start = async (more: Partial<AgentOptions> = {}): Promise<Agent> => {
    const agent = await startAgent({ ...options, ...more }, { log, env, listenEphemeral: true });
    t.after(() => agent.destroy(new Error("the test is over")));
    return agent;
  };
  return { server, dir, caCert, texts, lines, start };
}
