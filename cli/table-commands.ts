import type { OptionTable, Rows, ValuesOf } from "../shared/config/options.ts";
import type { Logger } from "../shared/runtime/logger.ts";
import type { Closable } from "../shared/runtime/run.ts";

/** A command with an option table. Its modules are loaded when it is asked for: no command waits for another's. */
export interface TableCommand {
  readonly name: string;
  /** HyperShift's name of it. */
  readonly alias?: string;
  readonly summary: string;
  table(): Promise<OptionTable>;
  run(argv: readonly string[]): Promise<void>;
}

export const TABLE_COMMANDS: readonly TableCommand[] = [
  service({
    name: "server",
    summary: "Accept CONNECT requests and carry them through the tunnels of agents.",
    table: async () => (await import("../server/options/options.ts")).serverOptions,
    start: async (values, log) => (await import("../server/server.ts")).startServer(values, { log }),
  }),
  service({
    name: "agent",
    summary: "Connect to a server, and to targets in this network for the server's callers.",
    table: async () => (await import("../agent/context/options.ts")).agentOptions,
    start: async (values, log) => (await import("../agent/agent.ts")).startAgent(values, { log }),
  }),
  {
    name: "doctor",
    summary: "Connect to the server step by step as an agent does, and say what is in the way.",
    table: async () => (await import("../agent/doctor/doctor.ts")).doctorOptions,
    async run(argv) {
      const { runDoctor } = await import("./doctor.ts");
      await runDoctor(argv);
      process.stdout.write("", () => process.exit()); // questions to a silent name server may still be open
    },
  },
  service({
    name: "router",
    summary: "Forward TLS connections to the server whose name they ask for (SNI).",
    table: async () => (await import("../router/options.ts")).routerOptions,
    start: async (values, log) => (await import("../router/router.ts")).startRouter(values, { log }),
  }),
  service({
    name: "socks5-proxy",
    alias: "konnectivity-socks5-proxy",
    summary: "Be a SOCKS5 proxy beside a container, through the tunnels of servers.",
    table: async () => (await import("../sidecars/options.ts")).socks5ProxyOptions,
    start: async (values, log) => (await import("../sidecars/socks5-proxy.ts")).startSocks5Proxy(values, { log }),
    argv: withoutRun,
  }),
  service({
    name: "http-proxy",
    alias: "konnectivity-https-proxy",
    summary: "Be an HTTP proxy beside a container, through the tunnels of servers.",
    table: async () => (await import("../sidecars/options.ts")).httpProxyOptions,
    start: async (values, log) => (await import("../sidecars/http-proxy.ts")).startHttpProxy(values, { log }),
    argv: withoutRun,
  }),
];

interface Service<R extends Rows> extends Omit<TableCommand, "run"> {
  table(): Promise<OptionTable<R>>;
  start(values: ValuesOf<R>, log: Logger): Promise<Closable>;
  /** The words of the command line that are read. */
  argv?(argv: readonly string[]): readonly string[];
}

function service<R extends Rows>({ start, argv: read = (argv) => argv, ...command }: Service<R>): TableCommand {
  return {
    ...command,
    async run(argv) {
      const [{ runService }, table] = await Promise.all([import("./service.ts"), command.table()]);
      await runService(table, read(argv), start);
    },
  };
}

/** HyperShift's sidecars have an argument `run`, which means nothing. */
function withoutRun(argv: readonly string[]): readonly string[] {
  return argv.filter((argument, at) => argument !== "run" || argv[at - 1]?.startsWith("--") === true);
}
