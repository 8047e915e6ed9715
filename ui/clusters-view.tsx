import { memo } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ClusterFact, ClusterState, Facts } from "../server/operators/facts.ts";
import { FIRST_VIEW, type ListView, type SortColumn, STATE_WORDS, shownClusters, stateCounts } from "./clusters.ts";
import { Graph } from "./graph.tsx";
import { clusterHref, Problems, State, Tile } from "./parts.tsx";
import { count, duration, plural, size } from "./text.ts";

const COLUMNS: readonly (readonly [SortColumn, string, className?: string])[] = [
  ["cluster", "Cluster"],
  ["state", "State"],
  ["agents", "Agents", "number"],
  ["losses", "Links cut", "number wide"],
  ["open", "Open", "number"],
  ["bytesPerSecond", "Bytes/s", "number"],
  ["failed", "Failed", "number wide"],
  ["limitHits", "Limits hit", "number wide"],
  ["refusedAt", "Last refusal", "number wide"],
];
/** These begin with the largest. */
const DESCENDING: ReadonlySet<SortColumn> = new Set([
  ...(["agents", "losses", "open", "bytesPerSecond", "failed", "limitHits", "refusedAt"] as const),
]);

/** All clusters, the worst first. */
export function ClustersView({ facts, now }: { readonly facts: Facts; readonly now: number }) {
  const [view, setView] = useState(FIRST_VIEW);
  const all = useMemo(() => clustersIn(facts), [facts]);
  const shown = useMemo(() => shownClusters(all, view), [all, view]);
  const { history } = facts;
  return (
    <>
      <h1>Clusters</h1>
      <Totals all={all} />
      <Problems problems={facts.problems ?? []} />
      {history === undefined ? null : (
        <div class="graphs">
          <Graph
            title="Bytes per second"
            values={history.bytesPerSecond}
            now={sumOf(all, "bytesPerSecond")}
            stepS={history.stepS}
            format={size}
          />
          <Graph
            title="Open connections"
            values={history.open}
            now={sumOf(all, "open")}
            stepS={history.stepS}
            format={count}
          />
        </div>
      )}
      <Filter all={all} view={view} setView={setView} />
      <p class="quiet" role="status">
        {shown.length === all.length
          ? plural(all.length, "cluster")
          : `${count(shown.length)} of ${all.length} clusters`}
      </p>
      <table class="clusters">
        <thead>
          <tr>
            {COLUMNS.map(([column, name, className]) => (
              <Heading key={column} column={column} name={name} className={className} view={view} setView={setView} />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((fact) => (
            <Row
              key={fact.cluster}
              fact={fact}
              refused={fact.refusedAt === null ? "" : `${duration(now - Date.parse(fact.refusedAt))} ago`}
            />
          ))}
        </tbody>
      </table>
    </>
  );
}

function clustersIn(facts: Facts): ClusterFact[] {
  return Object.entries(facts).flatMap(([key, fact]) => (key.startsWith("cluster/") ? (fact as ClusterFact) : []));
}

function sumOf(
  all: readonly ClusterFact[],
  what: "agents" | "suspendedLinks" | "open" | "connectsPerSecond" | "bytesPerSecond",
): number {
  return all.reduce((sum, one) => sum + one[what], 0);
}

function Totals({ all }: { readonly all: readonly ClusterFact[] }) {
  return (
    <dl class="tiles">
      <Tile name="Clusters">{count(all.length)}</Tile>
      <Tile name="Agents">{count(sumOf(all, "agents"))}</Tile>
      <Tile name="Links lost">{count(sumOf(all, "suspendedLinks"))}</Tile>
      <Tile name="Open connections">{count(sumOf(all, "open"))}</Tile>
      <Tile name="CONNECTs/s">{count(Math.round(sumOf(all, "connectsPerSecond") * 10) / 10)}</Tile>
      <Tile name="Bytes/s">{size(sumOf(all, "bytesPerSecond"))}</Tile>
    </dl>
  );
}

interface ViewProps {
  readonly view: ListView;
  readonly setView: (view: ListView) => void;
}

function Filter({ all, view, setView }: ViewProps & { readonly all: readonly ClusterFact[] }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <search class="filter">
      <label>
        Search{" "}
        <input
          ref={input}
          type="search"
          value={view.search}
          aria-keyshortcuts="/"
          onInput={({ currentTarget }) => setView({ ...view, search: currentTarget.value })}
        />
      </label>
      <label>
        State{" "}
        <select
          value={view.state}
          onChange={({ currentTarget }) => setView({ ...view, state: currentTarget.value as ClusterState | "" })}
        >
          <option value="">all</option>
          {stateCounts(all).map(([state, clusters]) => (
            <option key={state} value={state}>
              {STATE_WORDS[state]} ({count(clusters)})
            </option>
          ))}
        </select>
      </label>
    </search>
  );
}

interface HeadingProps extends ViewProps {
  readonly column: SortColumn;
  readonly name: string;
  readonly className: string | undefined;
}

function Heading({ column, name, className, view, setView }: HeadingProps) {
  const isSorted = view.sort === column;
  const direction = view.descending ? "descending" : "ascending";
  const sort = (): void =>
    setView({ ...view, sort: column, descending: isSorted ? !view.descending : DESCENDING.has(column) });
  return (
    <th scope="col" class={className} aria-sort={isSorted ? direction : "none"}>
      <button type="button" onClick={sort}>
        {name}
        <span aria-hidden="true">{isSorted ? (view.descending ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

interface RowProps {
  readonly fact: ClusterFact;
  readonly refused: string;
}

/** Only rows that have changed are drawn again. */
const Row = memo(function Row({ fact, refused }: RowProps) {
  const { cluster, state, agents, suspendedLinks, losses, open, bytesPerSecond, failed, limitHits } = fact;
  return (
    <tr>
      <th scope="row">
        <a href={clusterHref(cluster)}>{cluster}</a>
      </th>
      <td>
        <State state={state} />
      </td>
      <td class="number">{suspendedLinks === 0 ? agents : `${agents} (${suspendedLinks} lost)`}</td>
      <td class="number wide">{count(losses)}</td>
      <td class="number">{count(open)}</td>
      <td class="number">{size(bytesPerSecond)}</td>
      <td class="number wide">{count(failed)}</td>
      <td class="number wide">{count(limitHits)}</td>
      <td class="number wide">{refused}</td>
    </tr>
  );
});
