import type { Row } from "./check.ts";
import { CULVERT_LANES, type Lane, titleOf } from "./world/lanes.ts";

/** One Kubernetes version on one machine. */
export interface Report {
  readonly kubernetes: string;
  /** Where and when. */
  readonly circumstances: string;
  readonly rows: readonly Row[];
}

const ALL_LANES: readonly Lane[] = ["direct", ...CULVERT_LANES];
const TITLE_WIDTH = Math.max(...ALL_LANES.map((lane) => titleOf(lane).length));
const TIME_GOAL = 1.5;
const DIAL_GOAL_MS = 5;
const LINE_LENGTH = 240;
const CELL_LENGTH = 500;
const HEADING = "## Kubernetes ";

/** As each check ends. */
export function rowLine({ check, lane, seconds, dials, failure, printed, recoveredSeconds }: Row): string {
  const figures = [
    inSeconds(seconds),
    ...(dials === undefined ? [] : [`${dials} dials`]),
    ...(recoveredSeconds === undefined ? [] : [`recovered after ${inSeconds(recoveredSeconds)}`]),
  ];
  const mark = failure === undefined ? "✓" : "✗";
  return `${mark} ${titleOf(lane).padEnd(TITLE_WIDTH)} ${check}: ${figures.join(", ")} │ ${failure ?? cut(printed, LINE_LENGTH)}`;
}

/** The section of the results about one version. */
export function section({ kubernetes, circumstances, rows }: Report): string {
  const names = [...new Set(rows.map(({ check }) => check))];
  const checks = names.map((name) => new RowsOfCheck(rows.filter(({ check }) => check === name)));
  const troubles = checks.filter(({ trouble }) => trouble);
  const uses = checks.filter(({ trouble }) => !trouble);
  const lanes = ALL_LANES.filter((lane) => rows.some((row) => row.lane === lane));
  const tunnels = CULVERT_LANES.filter((lane) => lanes.includes(lane));
  return [
    `${HEADING}${kubernetes}`,
    circumstances,
    table(
      ["check", ...lanes.map(titleOf), "dials", "printed"],
      uses.map((check) => useCells(check, lanes, tunnels)),
    ),
    `Goals: for exec, cp and downloads ${TIME_GOAL} × the direct time; for a dial ${DIAL_GOAL_MS} ms more at the median.`,
    goalLines(uses).join("\n"),
    "Trouble, how soon kubectl tells of it, and (→) how soon after its end kubectl gets through again:",
    table(
      ["trouble", ...tunnels.map(titleOf), "kubectl's message"],
      troubles.map((check) => troubleCells(check, tunnels)),
    ),
  ].join("\n\n");
}

/** The document with this section in place of an earlier one of the same version; the newest version comes first. */
export function withSection(document: string, report: Report): string {
  const [preface = "", ...others] = document.split(new RegExp(`^(?=${HEADING})`, "m"));
  const kept = others.filter((other) => versionOf(other) !== report.kubernetes);
  const sections = [...kept.map((other) => other.trimEnd()), section(report)];
  const newestFirst = (a: string, b: string) => versionOf(b).localeCompare(versionOf(a), "en", { numeric: true });
  return `${[preface.trimEnd(), ...sections.sort(newestFirst)].join("\n\n")}\n`;
}

/** The rows of one check, at most one for each lane. */
class RowsOfCheck {
  readonly first: Row;
  readonly #rows: readonly Row[];

  constructor(rows: readonly Row[]) {
    const [first] = rows;
    if (!first) throw new Error("a check without a row");
    this.first = first;
    this.#rows = rows;
  }

  get trouble(): boolean {
    return this.first.trouble === true;
  }

  on(lane: Lane): Row | undefined {
    return this.#rows.find((row) => row.lane === lane);
  }

  /** The additional cost against the direct path, in the unit of its goal. */
  cost(lane: Lane): { readonly text: string; readonly met: boolean } | undefined {
    const [here, direct] = [this.on(lane), this.on("direct")];
    if (!here || !direct) return undefined;
    if (this.first.goal === "time") {
      const factor = here.seconds / direct.seconds;
      return { text: `${factor.toFixed(2)} ×`, met: factor <= TIME_GOAL };
    }
    if (here.p50Ms === undefined || direct.p50Ms === undefined) return undefined;
    const extraMs = here.p50Ms - direct.p50Ms;
    return { text: `+${extraMs.toFixed(1)} ms`, met: extraMs <= DIAL_GOAL_MS };
  }
}

function useCells(check: RowsOfCheck, lanes: readonly Lane[], tunnels: readonly Lane[]): string[] {
  const dials = tunnels.map((lane) => check.on(lane)?.dials ?? "·").join(" / ");
  return [check.first.check, ...lanes.map((lane) => timeCell(check, lane)), dials, printedCell(check)];
}

function timeCell(check: RowsOfCheck, lane: Lane): string {
  const row = check.on(lane);
  if (!row) return "";
  if (row.failure !== undefined) return "**failed**";
  const figure = row.p50Ms === undefined ? inSeconds(row.seconds) : `p50 ${row.p50Ms.toFixed(2)} ms`;
  const cost = lane === "direct" ? undefined : check.cost(lane);
  return cost === undefined ? figure : `${figure} (${cost.text})`;
}

function troubleCells(check: RowsOfCheck, tunnels: readonly Lane[]): string[] {
  const cells = tunnels.map((lane) => {
    const row = check.on(lane);
    if (!row) return "";
    if (row.failure !== undefined) return "**failed**";
    const { seconds, recoveredSeconds } = row;
    return recoveredSeconds === undefined
      ? inSeconds(seconds)
      : `${inSeconds(seconds)} → ${inSeconds(recoveredSeconds)}`;
  });
  return [check.first.check, ...cells, printedCell(check)];
}

/** Once where all lanes printed the same, and for each lane where they differ. */
function printedCell(check: RowsOfCheck): string {
  const rows = ALL_LANES.flatMap((lane) => check.on(lane) ?? []).filter(({ failure }) => failure === undefined);
  const quoted = ({ printed }: Row) => `\`${cut(printed, CELL_LENGTH).replaceAll("|", "\\|")}\``;
  const different = new Set(rows.map(quoted));
  if (different.size <= 1) return [...different].join("");
  return rows.map((row) => `${titleOf(row.lane)}: ${quoted(row)}`).join("<br>");
}

function goalLines(checks: readonly RowsOfCheck[]): string[] {
  return checks
    .filter(({ first }) => first.goal !== undefined)
    .flatMap((check) =>
      CULVERT_LANES.map((lane) => {
        const cost = check.cost(lane);
        if (cost === undefined) return "";
        return `- ${cost.met ? "met" : "**not met**"}: ${check.first.check}, ${titleOf(lane)}, ${cost.text}`;
      }),
    )
    .filter((line) => line !== "");
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function versionOf(text: string): string {
  return /^## Kubernetes (\S+)/.exec(text)?.[1] ?? "";
}

function inSeconds(seconds: number): string {
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

function cut(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
