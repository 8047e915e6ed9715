import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { agentOf, type Line, start } from "../testing/server.ts";
import { AgentLog, type LoggedAgent } from "./agent-log.ts";

const LINES = 20;

/** A log of agents of one identity, as many of which are connected as `connected` says. */
function logOf() {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = new AgentLog(createLogger({ level: "debug", format: "json", name: "server", destination }));
  const identity = "CN=agent";
  const it = {
    connected: 1,
    lines,
    tell: (agentId: string, level: "info" | "error" = "info") =>
      log.write(level, { cluster, identity, agentId }, { agent: agentId }, "tunnel opened"),
    told: () => lines.filter(({ level, omitted }) => level === "info" && omitted === undefined).length,
  };
  const tunnels = () => new Set(Array.from({ length: it.connected }, () => ({ agent: { identity } })));
  const cluster = { name: "blue", tunnels } as unknown as LoggedAgent["cluster"];
  return it;
}

test("what an agent writes beyond its lines of a minute is at debug, and how many those were is told behind it", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const log = logOf();
    for (let line = 0; line < LINES + 5; line++) log.tell("a");
    assert.equal(log.told(), LINES);
    assert.equal(log.lines.length, LINES + 5);
    mock.timers.tick(60_000);
    const { level, cluster, identity, omitted } = log.lines.at(-1) ?? assert.fail();
    assert.deepEqual([level, cluster, identity, omitted], ["info", "blue", "CN=agent", 5]);
    log.tell("a");
    assert.equal(log.told(), LINES + 1);
    mock.timers.tick(60_000);
    assert.equal(log.lines.length, LINES + 5 + 2, "a quiet minute is not told");
  } finally {
    mock.timers.reset();
  }
});

test("who calls himself by another id each time has no more lines for that", () => {
  const log = logOf();
  for (let line = 0; line < 1_000; line++) log.tell(`a-${line}`);
  assert.equal(log.told(), LINES);
});

test("agents that share an identity have their lines each, when they come together and when they go", () => {
  const log = logOf();
  const agents = Array.from({ length: 300 }, (_, index) => `a-${index}`);
  log.connected = 0;
  for (const agent of agents) {
    log.connected++;
    log.tell(agent);
  }
  for (const agent of agents) {
    log.tell(agent);
    log.connected--;
  }
  assert.equal(log.told(), 2 * agents.length);
});

test("one agent that comes and goes without end takes no line from the others of its identity", () => {
  const log = logOf();
  log.connected = 300;
  for (let line = 0; line < LINES + 5; line++) log.tell("restless");
  for (let agent = 1; agent < log.connected; agent++) {
    log.tell(`a-${agent}`);
    for (let line = 1; line < LINES; line++) log.tell("restless");
  }
  assert.equal(log.told(), LINES + log.connected - 1);
});

test("a fault of ours is written, whoever has used up his lines, and takes none", () => {
  const log = logOf();
  const faults = () => log.lines.filter(({ level }) => level === "error").length;
  for (let line = 0; line < LINES; line++) log.tell("a", "error");
  for (let line = 0; line < LINES + 5; line++) log.tell("a");
  log.tell("a", "error");
  assert.deepEqual([faults(), log.told()], [LINES + 1, LINES]);
});

test("an agent that comes and goes without end fills no log", async () => {
  await using server = await start();
  const times = LINES;
  for (let time = 0; time < times; time++) {
    const { session, closed } = await agentOf(server);
    session.destroy();
    await closed;
    await until(() => server.tunnels.clusters.get("default")?.tunnels().size === 0);
  }
  const about = server.lines.filter(({ msg }) => /^tunnel /.test(msg));
  assert.equal(about.length, 2 * times);
  assert.equal(about.filter(({ level }) => level !== "debug").length, LINES);
});
