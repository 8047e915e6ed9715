import { parseArgs } from "node:util";
import { NEWEST, OLDER } from "./assets.ts";
import { CULVERT_LANES, type Lane } from "./world/lanes.ts";

const LANES: readonly Lane[] = [...CULVERT_LANES, "direct"];

export const USAGE = `npm run e2e:kubernetes -- [options]

  --kubernetes VERSION   another version than ${NEWEST}, for example ${OLDER}; KUBEBUILDER_ASSETS goes before it
  --lanes LIST           of ${LANES.join(",")}; all of them by default
  --only TEXT            checks with this text in their name, and those that bring culvert up
  --repeat N             run what is compared N times, an odd number, and take the median
  --write                run all checks on all lanes, and write the results into docs/kubernetes-results.md

All checks run on the first lane that they can run on; the other lanes have logs, exec, a webhook and the checks that no
earlier lane can have. With CULVERT_FULL=1 all checks run on all lanes.`;

export interface Settings {
  readonly kubernetes: string;
  readonly lanes: readonly Lane[];
  /** Does each check run on all lanes that it can run on? */
  readonly full: boolean;
  readonly only: string;
  readonly repeat: number;
  readonly write: boolean;
}

/** Throws what is wrong with the arguments. */
export function readSettings(args: readonly string[], full: boolean): Settings {
  const { values } = parseArgs({
    args: [...args],
    options: {
      kubernetes: { type: "string", default: NEWEST },
      lanes: { type: "string", default: LANES.join(",") },
      only: { type: "string", default: "" },
      repeat: { type: "string", default: "1" },
      write: { type: "boolean", default: false },
    },
  });
  const lanes = values.lanes.split(",").map((name) => {
    const lane = LANES.find((known) => known === name);
    if (lane === undefined) throw new Error(`there is no lane "${name}"`);
    return lane;
  });
  const repeat = Number(values.repeat);
  if (!Number.isInteger(repeat) || repeat % 2 !== 1) throw new Error(`--repeat ${values.repeat} is not an odd number`);
  if (values.write && (values.only !== "" || lanes.length < LANES.length)) {
    throw new Error("--write is for all checks on all lanes");
  }
  if (values.write && repeat < 3) {
    throw new Error("--write is for figures that were looked at more than once: --repeat 3");
  }
  return { ...values, lanes, full: full || values.write, repeat };
}
