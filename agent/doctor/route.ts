import type { LookupAddress } from "node:dns";
import { isIP, type Socket } from "node:net";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { untilAborted } from "../../shared/basics/promises.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { dialTcp, lookupTimeout, networkFault } from "../../shared/dial/dial-tcp.ts";
import {
  type Environment,
  environmentProxy,
  formatProxy,
  formatRoute,
  KdcTimeout,
  ProxyFileFault,
  type ProxyRoute,
  RouteFault,
} from "../../shared/dial/proxy-route.ts";
import type { Passage } from "../../shared/link/dial.ts";
import { NAMES } from "../../shared/names/lookup.ts";
import { dialTargetOf, type ServerLocation } from "../context/servers.ts";
import { AgentRoutes, type RouteOptions, type RouteTaken } from "../uplink/proxy-route.ts";
import { SILENT } from "./configuration.ts";
import { type Passed, StepFailed, StepLog } from "./report.ts";

export interface RouteExamination {
  readonly server: ServerLocation;
  readonly options: RouteOptions;
  readonly env: Environment;
  /** For each step, ms. */
  readonly timeoutMs: number;
}

/** Opens a connection to the server, and another one each time it is asked again. */
export type Open = () => Promise<Passage>;

/** Opens a connection to the server's port: directly, or through the first proxy that leads there. */
export async function examineRoute(examination: RouteExamination, log: StepLog): Promise<Open> {
  const { server, timeoutMs } = examination;
  const notes: string[] = [];
  const { routes, ways } = await log.run("proxy route", () => find(examination, notes));
  const { hop, socket } = await connectFirst(ways, examination, log);
  const route = routes.to(server, "");
  const openAgain = () => route.open(AbortSignal.timeout(timeoutMs));
  if (hop.proxyFrom === undefined) {
    log.skip("proxy", "none on this way");
    return once({ socket }, openAgain);
  }
  socket.destroy(); // the route opens its own
  const through = await log.run("proxy", async () => {
    try {
      const value = await openAgain();
      return { value, detail: [...notes, ...wayThrough(route.worked())].join("; ") };
    } catch (error) {
      throw routeStepFailed(error, hop, true);
    }
  });
  return once(through, openAgain);
}

function once(first: Passage, openAgain: Open): Open {
  let unused: Passage | undefined = first;
  return async () => {
    const passage = unused ?? (await openAgain());
    unused = undefined;
    return passage;
  };
}

function wayThrough(taken: RouteTaken | undefined): string[] {
  if (taken === undefined) return [];
  const { way, authentication, reason } = taken;
  const login = authentication === undefined ? "no login is asked for" : `logged in by ${authentication}`;
  return [`through ${way}`, ...(way.startsWith("http") ? [login] : []), ...(reason ? [`before it ${reason}`] : [])];
}

interface Routes {
  readonly routes: AgentRoutes;
  /** In the order in which they are tried. */
  readonly ways: readonly ProxyRoute[];
}

/** The agent's own routes to the server, and what names them. */
async function find({ server, options, env, timeoutMs }: RouteExamination, notes: string[]): Promise<Passed<Routes>> {
  try {
    const routes = new AgentRoutes(options, env, SILENT, (note) => notes.push(note));
    const ways = await routes.choose(server, AbortSignal.timeout(timeoutMs));
    const isDirect = ways.every(({ kind }) => kind === "direct");
    const detail = isDirect ? `direct: ${whyDirect(options, env)}` : ways.map(formatRoute).join(", then ");
    return { value: { routes, ways }, detail };
  } catch (error) {
    const fault = error instanceof ConfigError ? error.cause : error;
    const { message: by } = fault as Error;
    const isOfFile = !(fault instanceof RouteFault) || fault instanceof ProxyFileFault;
    if (isOfFile) throw new StepFailed({ culprit: "configuration", by }, by);
    if (fault.fault === "pac") throw new StepFailed({ culprit: "pac", by }, by);
    // The network is at fault, on the way to the script.
    throw new StepFailed({ culprit: fault.fault, by: fault.at, proxyFrom: "--pac" }, by);
  }
}

function whyDirect({ pac }: RouteOptions, env: Environment): string {
  const named = environmentProxy(env);
  if (named?.kind === "proxy") {
    const why = env["NO_PROXY"] || env["no_proxy"] ? "NO_PROXY keeps it" : "an address of this machine is kept";
    return `${why} from ${formatRoute(named)}`;
  }
  if (pac !== "") return "the script of --pac says so";
  return "no proxy is named (--proxy, HTTPS_PROXY, ALL_PROXY, --pac)";
}

/** DNS and TCP of the first route whose first hop answers; the log gets the last one that was tried. */
async function connectFirst(routes: readonly ProxyRoute[], { server, timeoutMs }: RouteExamination, log: StepLog) {
  let before = "";
  for (const [index, route] of routes.entries()) {
    const hop = hopOf(route, dialTargetOf(server));
    const isLast = index === routes.length - 1;
    const tried = isLast ? log : new StepLog(() => {});
    try {
      const socket = await connectHop(hop, before, timeoutMs, tried);
      if (!isLast) for (const step of tried.steps) log.add(step);
      return { hop, socket };
    } catch (error) {
      if (!(error instanceof StepFailed) || isLast) throw error;
      before += `; before it ${error.message}`;
    }
  }
  throw new Error("no route was found, and none failed");
}

async function connectHop(hop: Hop, before: string, timeoutMs: number, log: StepLog): Promise<Socket> {
  if (isIP(hop.host) === 0) await log.run("dns", () => resolve(hop, AbortSignal.timeout(timeoutMs)));
  else log.skip("dns", `${hop.host} is an address`);
  return log.run("tcp", async () => {
    const { value, detail } = await connect(hop, AbortSignal.timeout(timeoutMs));
    return { value, detail: `${detail}${before}` };
  });
}

function hopOf(route: ProxyRoute, to: Target): Hop {
  if (route.kind === "direct") return { ...to, at: formatTarget(to) };
  const { host, port } = route.proxy;
  return { host, port, at: formatProxy(route.proxy), proxyFrom: route.from };
}

/** The first peer of a connection: the server, or a proxy. */
export interface Hop extends Target {
  /** `host:port`, or the URL of a proxy. */
  readonly at: string;
  /** The option or variable that names the proxy; absent: it is the server. */
  readonly proxyFrom?: string;
}

/** The addresses behind a name. */
async function resolve(hop: Hop, signal: AbortSignal): Promise<Passed<readonly LookupAddress[]>> {
  const { host, at } = hop;
  try {
    const addresses = await untilAborted(NAMES.find(host), signal);
    return { value: addresses, detail: `${host} is ${addresses.map(({ address }) => address).join(", ")}` };
  } catch (error) {
    const fault = signal.aborted ? lookupTimeout(host, at) : networkFault(error as NodeJS.ErrnoException, host, at);
    throw routeStepFailed(fault, hop);
  }
}

async function connect(hop: Hop, signal: AbortSignal): Promise<Passed<Socket>> {
  try {
    const socket = await dialTcp(hop, hop.at, signal);
    return { value: socket, detail: `connected to ${socket.remoteAddress}:${socket.remotePort}` };
  } catch (error) {
    throw routeStepFailed(error, hop);
  }
}

/** The fault of a route as a finding of the doctor. `isConnected`: the proxy took a connection before. */
export function routeStepFailed(error: unknown, hop: Hop, isConnected = false): unknown {
  if (!(error instanceof RouteFault)) return error;
  const { at: by, message } = error;
  // Where several routes failed, the cause is the fault that says most.
  const fault = error.cause instanceof RouteFault ? error.cause : error;
  if (fault instanceof ProxyFileFault) return new StepFailed({ culprit: "configuration", by: message }, message);
  const isProxy = hop.proxyFrom !== undefined && by === hop.at;
  const silent = fault instanceof KdcTimeout ? "kdc_silent" : "proxy_silent";
  // No firewall swallows packets to a proxy that took a connection.
  const culprit = isProxy && isConnected && error.fault === "timeout" ? silent : error.fault;
  return new StepFailed({ culprit, by, ...(isProxy && { proxyFrom: hop.proxyFrom }) }, message);
}
