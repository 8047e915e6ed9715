import { parseArgs } from "node:util";

const GROUPS = [
  "throughput",
  "latency",
  "connect",
  "against",
  "memory",
  "start",
  "slow-line",
  "planned-change",
  "storm",
  "noisy-neighbour",
  "clusters",
  "inner-tls",
  "processes",
  "hop",
  "sidecar",
  "traces",
  "pages",
  "fleet",
] as const;
/** Groups that start every product by themselves; with `--peers` only these are measured. */
export const PEER_GROUPS = ["dials", "traffic", "http2", "at-rest"] as const;
export type Group = (typeof GROUPS)[number] | (typeof PEER_GROUPS)[number];

export interface Settings {
  readonly only: readonly Group[];
  /** Length of one sample. */
  readonly seconds: number;
  readonly rounds: number;
  /** Without culvert: the floors and the load generator alone. */
  readonly floorsOnly: boolean;
  readonly build: boolean;
  /** Another clone whose build is measured beside this one. */
  readonly against?: string;
  /** The folder with the programs of Konnectivity and frp. */
  readonly peers?: string;
  /** Puts the table into docs/performance.md. */
  readonly page: boolean;
}

export const USAGE = `npm run bench -- [--only ${[...GROUPS, ...PEER_GROUPS].join(",")}] [--seconds 2] [--rounds 3] [--floors-only] [--no-build] [--against FOLDER_OF_ANOTHER_CLONE] [--peers FOLDER_OF_PROGRAMS [--page]]`;

export function readSettings(args: readonly string[]): Settings {
  const { values } = parseArgs({
    args: [...args],
    options: {
      only: { type: "string" },
      seconds: { type: "string", default: "2" },
      rounds: { type: "string", default: "3" },
      "floors-only": { type: "boolean", default: false },
      "no-build": { type: "boolean", default: false },
      against: { type: "string" },
      peers: { type: "string" },
      page: { type: "boolean", default: false },
    },
  });
  const { against, peers } = values;
  const all = [...GROUPS, ...PEER_GROUPS];
  const only = values.only?.split(",").map((name) => {
    const group = all.find((each) => each === name);
    if (!group) throw new Error(`there is no group "${name}"; there are ${all.join(", ")}`);
    return group;
  });
  const seconds = positive("--seconds", values.seconds);
  const rounds = Math.ceil(positive("--rounds", values.rounds));
  const { "floors-only": floorsOnly, "no-build": noBuild, page } = values;
  if (page && (peers === undefined || only !== undefined)) throw new Error("--page wants --peers, and no --only");
  const build = !noBuild && !floorsOnly;
  return {
    only: only ?? (peers === undefined ? GROUPS : PEER_GROUPS),
    seconds,
    rounds,
    floorsOnly,
    build,
    page,
    ...(against === undefined ? {} : { against }),
    ...(peers === undefined ? {} : { peers }),
  };
}

function positive(flag: string, text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new Error(`${flag} wants a number above 0, not "${text}"`);
  return value;
}
