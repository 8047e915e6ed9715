import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { defaultMemoryLimit } from "../limits/memory-limit.ts";
import { LOG_LEVELS } from "../runtime/logger.ts";
import { IGNORED_BY_BOTH } from "./konnectivity.ts";
import { overlap } from "./listen-address.ts";
import type { Option } from "./options.ts";
import { type Draft, defineOptions, type OptionTable, option, type Rows, section } from "./options.ts";
import { formatSize } from "./values.ts";

/** What the tables of server and agent share: both ends of a tunnel have the same bounds (design: "Bounds"). */

export const logRows = section("Logs", {
  logLevel: option.oneOf(
    LOG_LEVELS,
    "info",
    "Least level that is written. One line for each finished connection is at info. /log-level on the admin port changes it.",
  ),
  logFormat: option.oneOf(
    ["auto", "json", "pretty"],
    "auto",
    "JSON lines, or lines for people; auto is pretty on a terminal only.",
  ),
});

export const streamRows = section("Streams and memory", {
  maxStreams: option.integer(65_536, "Streams one tunnel may carry at once; a peer that opens more is refused.", {
    min: 1,
    max: 1_000_000,
  }),
  maxWindow: option.size("16MiB", "Largest window of one stream: bandwidth times round trip that one stream can use.", {
    min: "16KiB",
    max: "1GiB",
  }),
  sessionBudget: option.size(
    "64MiB",
    "Bytes all streams of a tunnel may buffer. Above it no window grows, and connections whose readers have stopped are ended, those first that hold most and have not moved for longest.",
    { min: "1MiB", max: "16GiB" },
  ),
  memoryLimit: option.size(
    formatSize(defaultMemoryLimit()),
    "Bytes all connections of the process may hold together: unread by slow readers, not acknowledged by the other end, waiting in sockets. Above it, clusters that hold more than their part end connections whose readers have stopped, and their windows do not grow. New connections are refused only where nothing has stopped. The process takes more: some 80MiB when idle, and bytes on their way.",
    { min: "1MiB", defaultText: "half of what the control group, or else the machine, has beyond 80MiB" },
  ),
  replayBuffer: option.size(
    "16MiB",
    "Bytes a tunnel keeps until the other end has acknowledged them, to send them once more over a new connection; so also the most that is under way.",
    { min: "64KiB", max: "1GiB" },
  ),
  stallTimeoutMs: option.duration(
    "15m",
    "A connection is ended when its peer takes no byte for so long while data waits for it, and when nothing passes for so long after one side has ended. Silent ones live for ever.",
    { min: "1s" },
  ),
});

export const tlsRows = section("TLS", {
  tlsMinVersion: option.tlsVersion("Oldest TLS version spoken; VersionTLS12 and VersionTLS13 are understood.", {
    konnectivity: "--tls-min-version",
  }),
  cipherSuites: option.cipherSuites("Suites of TLS 1.2 by Go's or OpenSSL's names; empty: Node's own list.", {
    konnectivity: "--cipher-suites",
    defaultText: "Node's own",
  }),
});

/** Under "Health and administration" of both. */
export const adminBindAddress = option.address("127.0.0.1", "Address of the admin port. Empty: loopback.", {
  konnectivity: "--admin-bind-address",
});

export const adminAllowedHosts = option.list(
  [],
  "Names by which the admin port may be asked for (Host), beside localhost and IP addresses. Others are refused: they may be those of a page in an operator's browser that was led here (DNS rebinding).",
  { item: hostName },
);

/** The same in server and router, whose documents and routes name tenants. */
export const healthShowsClusters = option.boolean(
  false,
  "The health port tells names of clusters and routes, and paths of files, in /readyz?verbose and in labels of /metrics, as the admin port does. Probes and balancers need none of it, and many can reach that port.",
);

/** Host without its port. */
function hostName(text: string): string {
  if (!/^[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?$/i.test(text))
    throw new Error(`needs names of hosts without a port, not "${text}"`);
  return text;
}

/** In both tables, under headings of their own. */
type RowsOfBoth = Rows & { readonly keepaliveMs: Option<number>; readonly adminBindAddress: Option<string> };

/** The table of a server or an agent: its own rows and flags, with the flags and checks of both. */
export function defineService<R extends RowsOfBoth>(table: OptionTable<R>): OptionTable<R> {
  return defineOptions({
    ...table,
    foreign: { ...table.foreign, ...IGNORED_BY_BOTH },
    settle: (draft) => {
      settleBoth(draft as unknown as Draft<RowsOfBoth>);
      table.settle(draft);
    },
  });
}

function settleBoth({ values, warn }: Draft<RowsOfBoth>): void {
  if (values.keepaliveMs > 5 * 60_000) {
    const minutes = Math.round((values.keepaliveMs * 2.5) / 60_000);
    warn(`--keepalive: a tunnel that is lost without a word will be noticed only after ${minutes} minutes.`);
  }
  // Konnectivity's server reads an empty address as loopback; whoever wants more says so (0.0.0.0 or ::).
  if (values.adminBindAddress === "") values.adminBindAddress = "127.0.0.1";
}

/** A certificate and its key come together. */
export function settlePair(draft: Draft<Rows>, cert: [flag: string, value: string], key: [string, string]): void {
  if (cert[1] !== "" && key[1] === "") draft.problem(`${cert[0]} needs its private key: give ${key[0]} too.`);
  if (cert[1] === "" && key[1] !== "") draft.problem(`${key[0]} needs its certificate: give ${cert[0]} too.`);
}

/** Two listeners of one process on the same port would fail only at the second listen; one on every interface is on each of them. */
export function settlePorts(draft: Draft<Rows>, ports: readonly [flag: string, port: number, address: string][]): void {
  for (const [index, [flag, port, address]] of ports.entries()) {
    const other = ports.slice(0, index).find((before) => before[1] === port && overlap(before[2], address));
    if (port !== 0 && other !== undefined) draft.problem(`${other[0]} and ${flag} are both ${port}.`);
  }
}

/** The default of an id: to be told apart in logs, and never shared by two processes on one host. */
export function generatedId(): string {
  return `${hostname()
    .slice(0, 64)
    .replace(/[^A-Za-z0-9._:-]/g, "-")}-${randomBytes(4).toString("hex")}`;
}
