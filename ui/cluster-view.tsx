import type { AgentFact, DetailFact, Facts } from "../server/operators/facts.ts";
import { Check } from "./check.tsx";
import { Graph } from "./graph.tsx";
import { Ago, Certificates, Problems, Refusals, State, Tile } from "./parts.tsx";
import { count, duration, milliseconds, plural, size } from "./text.ts";

interface ClusterProps {
  readonly name: string;
  readonly facts: Facts;
  readonly now: number;
}

/** One cluster: its agents and their links, what it carries, and who was refused. */
export function ClusterView({ name, facts, now }: ClusterProps) {
  const { detail } = facts;
  const fact = facts[`cluster/${name}`];
  return (
    <>
      <h1>
        <span class="quiet">Cluster</span> {name} {fact === undefined ? null : <State state={fact.state} />}
      </h1>
      {detail === undefined ? (
        <p role="status">{fact === undefined ? "No cluster of this name is served here." : "Loading …"}</p>
      ) : (
        <Detail name={name} detail={detail} agents={agentsIn(facts)} open={fact?.open ?? 0} now={now} />
      )}
    </>
  );
}

function agentsIn(facts: Facts): AgentFact[] {
  const agents = Object.entries(facts).flatMap(([key, fact]) => (key.startsWith("agent/") ? (fact as AgentFact) : []));
  return agents.sort((a, b) => (a.agent < b.agent ? -1 : 1));
}

interface DetailProps {
  readonly name: string;
  readonly detail: DetailFact;
  readonly agents: readonly AgentFact[];
  readonly open: number;
  readonly now: number;
}

function Detail({ name, detail, agents, open, now }: DetailProps) {
  const { history, connects, bytes, refusals, certificates, problems, elsewhere } = detail;
  return (
    <>
      <dl class="tiles">
        <Tile name="Open connections">{count(open)}</Tile>
        <Tile name="Waiting">{count(detail.pendingConnects)}</Tile>
        <Tile name="CONNECTs/s">{connects.perSecond}</Tile>
        <Tile name="Bytes/s">{size(bytes.perSecond)}</Tile>
        <Tile name="Carried">{size(bytes.carried)}</Tile>
      </dl>
      <Problems problems={problems} />
      <section aria-labelledby="agents">
        <h2 id="agents">Agents</h2>
        {agents.length === 0 ? (
          <p class="bad">No agent is connected here.</p>
        ) : (
          <ul class="agents">
            {agents.map((agent) => (
              <Agent key={agent.tunnel} agent={agent} now={now} />
            ))}
          </ul>
        )}
        {elsewhere.map(({ serverId, agents: count }) => (
          <p key={serverId}>
            {plural(count, "agent")} at server {serverId}.
          </p>
        ))}
      </section>
      <Check key={name} cluster={name} />
      <section aria-labelledby="traffic">
        <h2 id="traffic">The last 15 minutes</h2>
        <div class="graphs">
          <Graph
            title="Bytes per second"
            values={history.bytesPerSecond}
            now={bytes.perSecond}
            stepS={history.stepS}
            format={size}
          />
          <Graph title="Open connections" values={history.open} now={open} stepS={history.stepS} format={count} />
          <Graph title="Failed CONNECTs" values={history.failed} stepS={history.stepS} format={count} />
          <Graph title="Limits hit" values={history.limitHits} stepS={history.stepS} format={count} />
        </div>
        <Ends outcomes={connects.outcomes} />
      </section>
      <Limits limits={detail.limits} />
      <section aria-labelledby="refusals">
        <h2 id="refusals">Refusals</h2>
        <Refusals refusals={refusals} now={now} />
      </section>
      <section aria-labelledby="certificates">
        <h2 id="certificates">Certificates</h2>
        <Certificates certificates={certificates} withCluster={false} now={now} />
      </section>
    </>
  );
}

function Agent({ agent, now }: { readonly agent: AgentFact; readonly now: number }) {
  const { carriers, protocol, remote, identity, software, streams, bufferedBytes, replayBytes, roundTripMs } = agent;
  const [word, state] = linkState(agent);
  const { lastLoss } = carriers;
  const moves = carriers.resumes - carriers.losses;
  return (
    <li>
      <h3>
        {agent.agent} <span class={`state ${state}`}>{word}</span>
      </h3>
      {carriers.lostAt === null ? null : (
        <p class="bad">
          The connection was lost <Ago at={carriers.lostAt} now={now} />. Its streams wait for the agent's next one.
        </p>
      )}
      {lastLoss === null ? null : (
        <p>
          Lost {plural(carriers.losses, "time")}, last <Ago at={lastLoss.at} now={now} />: {lastLoss.reason}. That
          connection had lived for {duration(lastLoss.ageMs)}, and had been silent for {duration(lastLoss.idleMs)}.
        </p>
      )}
      {moves < 2 ? null : (
        <p>
          It has moved to a new connection {plural(moves, "time")} before the old one was lost: by --max-carrier-age, or
          because the agent has learned after which time something on the way cuts it.
        </p>
      )}
      <dl class="facts">
        <Tile name="Tunnel since">
          <Ago at={agent.connectedAt} now={now} />
        </Tile>
        <Tile name="Connection since">
          <Ago at={carriers.since} now={now} />
        </Tile>
        <Tile name="Resumed">{plural(carriers.resumes, "time")}</Tile>
        <Tile name="Least round trip">{roundTripMs === null ? "not known" : milliseconds(roundTripMs)}</Tile>
        <Tile name="Streams">{count(streams)}</Tile>
        <Tile name="Held for slow readers">{size(bufferedBytes)}</Tile>
        <Tile name="Not acknowledged">{size(replayBytes)}</Tile>
        <Tile name="Protocol">{protocol}</Tile>
        <Tile name="From">{remote}</Tile>
        {agent.proxy === null ? null : <Tile name="Through its proxy">{agent.proxy}</Tile>}
        <Tile name="Identity">{identity}</Tile>
        <Tile name="Software">{software}</Tile>
      </dl>
    </li>
  );
}

/** A word for the state of a link, and its colour. */
function linkState({ suspended, standsStill, draining, probe }: AgentFact): readonly [string, string] {
  if (suspended) return ["link lost", "link_lost"];
  if (standsStill) return ["stands still", "degraded"];
  if (draining) return ["leaving", "limited"];
  if (probe) return ["measures", "suspended"];
  return ["connected", "ok"];
}

function Ends({ outcomes }: { readonly outcomes: Readonly<Record<string, number>> }) {
  const all = Object.entries(outcomes).sort(([, a], [, b]) => b - a);
  if (all.length === 0) return null;
  return (
    <p>
      Ended since the start:{" "}
      {all.map(([code, times], index) => (
        <span key={code}>
          {index === 0 ? "" : ", "}
          <code>{code}</code> {count(times)}
        </span>
      ))}
    </p>
  );
}

function Limits({ limits }: { readonly limits: DetailFact["limits"] }) {
  const hit = limits.hit as Readonly<Record<string, number>>;
  const set = Object.entries(limits.set).filter(([, value]) => value !== undefined);
  if (set.length === 0) return null;
  return (
    <section aria-labelledby="limits">
      <h2 id="limits">Limits</h2>
      <ul>
        {set.map(([name, value]) => (
          <li key={name}>
            <code>limits.{name}</code> {count(Number(value))}
            {(hit[name] ?? 0) === 0 ? "" : <strong class="bad">, hit {plural(hit[name] ?? 0, "time")}</strong>}
          </li>
        ))}
      </ul>
    </section>
  );
}
