import { render } from "preact";
import { useEffect, useReducer, useRef } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./main.css";
import { ClusterView } from "./cluster-view.tsx";
import { ClustersView } from "./clusters-view.tsx";
import { RefusalsView, ServerView } from "./server-view.tsx";
import { Store } from "./store.ts";
import { duration } from "./text.ts";

const store = new Store();

/** The view that the address names: the list of clusters, one of them, the refusals or the server. */
function place(): { readonly view: "clusters" | "cluster" | "refusals" | "server"; readonly cluster: string } {
  const [, view = "", cluster = ""] = location.hash.split("/");
  if (view === "cluster" && cluster !== "") return { view, cluster: nameIn(cluster) };
  return { view: view === "refusals" || view === "server" ? view : "clusters", cluster: "" };
}

/** Text that is no escape, such as the "%" in an address that was typed, is kept. */
function nameIn(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const VIEWS = [
  ["clusters", "#/", "Clusters"],
  ["refusals", "#/refusals", "Refusals"],
  ["server", "#/server", "Server"],
] as const;

function App() {
  const [, draw] = useReducer((times: number, _action: undefined) => times + 1, 0);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    store.start(() => draw(undefined));
    addEventListener("hashchange", () => {
      store.look(place().cluster);
      draw(undefined);
      main.current?.focus();
      scrollTo(0, 0);
    });
  }, []);
  const { view, cluster } = place();
  const { facts, lostAt } = store;
  const now = store.now();
  const name = facts.server?.serverId ?? "";
  document.title = `${cluster === "" ? (VIEWS.find(([each]) => each === view)?.[2] ?? "") : cluster} · ${name} · culvert`;
  return (
    <>
      <header>
        <span class="brand">culvert</span>
        <nav aria-label="Views">
          {VIEWS.map(([each, href, title]) => (
            <a key={each} href={href} aria-current={each === view ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <span class="quiet server">{name}</span>
      </header>
      <p class={lostAt === undefined ? "hidden" : "bad banner"} role="status">
        {lostAt === undefined ? "" : `No answer from the server for ${duration(Date.now() - lostAt)}: this is older.`}
      </p>
      <main ref={main} tabIndex={-1}>
        {view === "clusters" ? <ClustersView facts={facts} now={now} /> : null}
        {view === "cluster" ? <ClusterView key={cluster} name={cluster} facts={facts} now={now} /> : null}
        {view === "refusals" ? <RefusalsView facts={facts} now={now} /> : null}
        {view === "server" ? <ServerView facts={facts} now={now} /> : null}
      </main>
    </>
  );
}

store.look(place().cluster);
const root = document.getElementById("page");
if (root !== null) render(<App />, root);
