import { createSite, type Site } from "../harness/binaries.ts";
import type { Flags } from "../harness/pki-files.ts";
import { callerTls } from "../harness/pki-files.ts";
import type { ManagedProcess, ProcessOptions } from "../harness/processes.ts";
import type { Contender, ContenderName, Ports } from "./contenders.ts";
import type { BenchTarget, DialSpec } from "./dial-spec.ts";

/** culvert as its users run it: two processes of the build, defaults everywhere; logs are written and thrown away. */
export interface Culvert extends Contender {
  readonly site: Site;
  readonly server: ManagedProcess;
  /** Absent when started without. */
  readonly agent: ManagedProcess | undefined;
  dialTls(target: BenchTarget): DialSpec;
}

interface CulvertOptions extends ProcessOptions {
  readonly name?: ContenderName;
  readonly flags?: Flags;
  readonly withAgent?: boolean;
}

export async function startCulvertPair(ports: Ports, options: CulvertOptions = {}): Promise<Culvert> {
  const { name = "culvert", flags = {}, withAgent = true, ...process } = options;
  const quiet = { ignoreStdout: true, ...process };
  const site = await createSite();
  const server = await site.startServer(flags, quiet);
  const agent = withAgent ? await startAgent(site, server, flags, quiet) : undefined;
  const connect = (target: BenchTarget) => `127.0.0.1:${ports[target]}`;
  const { ca, cert = "", key = "" } = callerTls(site.dir.path);
  return {
    name,
    site,
    server,
    agent,
    near: server.pid,
    ...(agent ? { far: agent.pid } : {}),
    dial: (target) => ({ path: site.uds, connect: connect(target) }),
    dialTls: (target) => ({ port: site.callerPort, tls: { ca, cert, key }, connect: connect(target) }),
    async [Symbol.asyncDispose]() {
      await agent?.stop();
      await server.stop();
      site[Symbol.dispose]();
    },
  };
}

async function startAgent(site: Site, server: ManagedProcess, flags: Flags, options: ProcessOptions) {
  try {
    return await site.startAgent(flags, options);
  } catch (error) {
    await server.stop();
    throw error;
  }
}
