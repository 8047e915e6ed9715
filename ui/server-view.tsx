import type { Facts, OtherServerFact } from "../server/operators/facts.ts";
import type { ShownPhase } from "../server/operators/traffic-history.ts";
import { Certificates, Problems, Refusals, Tile } from "./parts.tsx";
import { count, duration, milliseconds, size } from "./text.ts";

interface ViewProps {
  readonly facts: Facts;
  readonly now: number;
}

/** The process itself: memory, event loop, listeners and certificates. */
export function ServerView({ facts, now }: ViewProps) {
  const { server, load, problems = [], certificates = [] } = facts;
  if (server === undefined || load === undefined) return <h1>Server</h1>;
  const { memory } = load;
  return (
    <>
      <h1>
        <span class="quiet">Server</span> {server.serverId}{" "}
        {server.draining ? <span class="state limited">draining</span> : null}
      </h1>
      <dl class="tiles">
        <Tile name="Started">{duration(now - Date.parse(server.startedAt))} ago</Tile>
        <Tile name="Version">{server.version}</Tile>
        <Tile name="Node.js">{server.node}</Tile>
        <Tile name="Servers">{server.servers === null ? "not known" : count(server.servers)}</Tile>
      </dl>
      <Problems problems={problems} />
      <OtherServers others={facts.others ?? []} />
      <section aria-labelledby="load">
        <h2 id="load">Memory and event loop</h2>
        <dl class="tiles">
          <Tile name="Held by connections">{size(Number(memory["heldBytes"]))}</Tile>
          <Tile name="Limit">{size(Number(memory["limitBytes"]))}</Tile>
          <Tile name="Process (RSS)">{size(load.rssBytes)}</Tile>
          <Tile name="Heap">{size(load.heapBytes)}</Tile>
          <Tile name="Event loop busy">{Math.round(load.loopBusy * 100)} %</Tile>
          <Tile name="Longest delay, last second">{load.loopDelayMs} ms</Tile>
          <Tile name="Streams refused for memory">{count(Number(memory["refusedStreams"]))}</Tile>
          <Tile name="Connections ended for memory">{count(Number(memory["endedConnections"]))}</Tile>
        </dl>
        {memory["refusing"] === true ? <p class="bad">New connections are refused: memory is short.</p> : null}
      </section>
      <ConnectTime phases={facts.phases ?? []} />
      <section aria-labelledby="listeners">
        <h2 id="listeners">Listeners</h2>
        <dl class="facts">
          {Object.entries(server.listeners).map(([name, address]) => (
            <Tile key={name} name={name}>
              {address}
            </Tile>
          ))}
        </dl>
      </section>
      <section aria-labelledby="certificates">
        <h2 id="certificates">Certificates that end first</h2>
        <Certificates certificates={certificates} withCluster={true} now={now} />
      </section>
    </>
  );
}

const PHASE_WORDS = {
  authenticate: "Authenticate the caller",
  pick: "Pick an agent",
  open: "To the agent and back",
  resolve: "Agent looks up the name",
  dial: "Agent dials the target",
} as const satisfies Record<ShownPhase["phase"], string>;

function ConnectTime({ phases }: { readonly phases: readonly ShownPhase[] }) {
  return (
    <section aria-labelledby="connect-time">
      <h2 id="connect-time">Where the time of a CONNECT goes</h2>
      <dl class="tiles">
        {phases.map(({ phase, count, meanMs }) => (
          <Tile key={phase} name={PHASE_WORDS[phase]}>
            {count === 0 ? "–" : milliseconds(meanMs)}
          </Tile>
        ))}
      </dl>
      <p class="quiet">Means of the last 15 minutes, of CONNECTs of all clusters that were answered with 200.</p>
    </section>
  );
}

/** The servers of `--admin-peers`, each with the address of its own page. */
function OtherServers({ others }: { readonly others: readonly OtherServerFact[] }) {
  if (others.length === 0) return null;
  return (
    <section aria-labelledby="others">
      <h2 id="others">Other servers</h2>
      <table>
        <thead>
          <tr>
            <th scope="col">Server</th>
            <th scope="col">Address</th>
            <th scope="col" class="number">
              Agents
            </th>
            <th scope="col" class="number wide">
              Clusters
            </th>
            <th scope="col" class="number">
              Open
            </th>
            <th scope="col" class="number wide">
              Bytes/s
            </th>
          </tr>
        </thead>
        <tbody>
          {others.map((other) => (
            <OtherServer key={other.address} other={other} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function OtherServer({ other }: { readonly other: OtherServerFact }) {
  const link = <a href={`http://${other.address}/ui/`}>{other.address}</a>;
  if ("problem" in other) {
    return (
      <tr>
        <th scope="row">–</th>
        <td>{link}</td>
        <td colSpan={4} class="bad">
          no answer: {other.problem}
        </td>
      </tr>
    );
  }
  const { serverId, draining, agents, clusters, open, bytesPerSecond } = other;
  return (
    <tr>
      <th scope="row">
        {serverId} {draining ? <span class="state limited">draining</span> : null}
      </th>
      <td>{link}</td>
      <td class="number">{count(agents)}</td>
      <td class="number wide">{count(clusters)}</td>
      <td class="number">{count(open)}</td>
      <td class="number wide">{size(bytesPerSecond)}</td>
    </tr>
  );
}

/** The last refusals, in all clusters and before a cluster was known. */
export function RefusalsView({ facts: { refusals = [] }, now }: ViewProps) {
  return (
    <>
      <h1>Refusals</h1>
      <Refusals refusals={refusals} clusterOf={(at) => refusals[at]?.cluster ?? ""} now={now} />
    </>
  );
}
