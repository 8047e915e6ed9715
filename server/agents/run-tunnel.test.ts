import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { type PeerIdentity, parsePattern } from "../../shared/tls/identity.ts";
import { ALL_ALIKE, Claims, routingRules } from "../clusters/routing-rules.ts";
import { agentOf, type Line, start } from "../testing/server.ts";
import type { Credential } from "../tunnels/links.ts";
import { agentBudgets, claimedIdentifiers, type LoggedAgent, requireAcceptedHello } from "./run-tunnel.ts";

const PEER: PeerIdentity = {
  ...{ cn: "agent", o: [], dns: [], uri: [], fingerprint256: "AA" },
  ...{ notAfter: new Date(), chain: [] },
};
const BY_CERTIFICATE: Credential = { identity: "CN=agent", peer: PEER, ca: "the CA", token: undefined };
const RULES = {
  ca: "the CA",
  identities: [parsePattern("CN=agent")],
  trust: { crlFault: (): string | undefined => undefined },
};

test("a credential that was verified before the hello must be accepted by the present rules", () => {
  const accept = (credential: Credential, more: Partial<typeof RULES> = {}) =>
    requireAcceptedHello({ cluster: "blue" }, credential, { name: "blue" }, { ...RULES, ...more });
  accept(BY_CERTIFICATE);
  const changed = /trust of this cluster has changed/;
  assert.throws(() => accept(BY_CERTIFICATE, { ca: "another CA" }), changed);
  assert.throws(() => accept(BY_CERTIFICATE, { identities: [parsePattern("CN=other")] }), changed);
  assert.throws(() => accept(BY_CERTIFICATE, { trust: { crlFault: () => "is revoked" } }), changed);
  accept({ identity: "SUB=agent", peer: undefined, ca: undefined, token: undefined }, { ca: "another CA" });
});

test("an agent that claims what is another's, or what is no identifier, is refused by code", () => {
  const claims = new Claims([{ identities: ["CN=agent"], hosts: ["172.30.1.5"], cidrs: [], defaultRoute: false }]);
  const cluster = { name: "blue", rules: { ...ALL_ALIKE, strategies: ["destHost"], claims } } as const;
  const taken = claimedIdentifiers({ identifiers: { ipv4: ["::ffff:172.30.1.5"] } }, BY_CERTIFICATE, cluster);
  assert.deepEqual(taken, { ipv4: ["172.30.1.5"] });
  assert.deepEqual(claimedIdentifiers({}, BY_CERTIFICATE, cluster), {});
  for (const [identifiers, closeCode, reason] of [
    [
      { ipv4: ["172.30.1.6"] },
      4403,
      'this agent may not claim 172.30.1.6 in cluster "blue" (agents.claims of its document)',
    ],
    [
      { defaultRoute: true },
      4403,
      'this agent may not claim the default route in cluster "blue" (agents.claims of its document)',
    ],
    [
      { host: ["a b"] },
      4400,
      'bad hello message: identifiers: host="a b" is no host name: letters, digits, - and _ between dots',
    ],
    [
      {
        host: Array.from({ length: 40 }, (_, i) => `h${i}`),
        cidr: Array.from({ length: 25 }, (_, i) => `10.${i}.0.0/16`),
      },
      4400,
      "bad hello message: identifiers: these are 65 identifiers, and at most 64 are allowed",
    ],
  ] as const) {
    assert.throws(() => claimedIdentifiers({ identifiers }, BY_CERTIFICATE, cluster), { closeCode, reason });
  }
});

test("what may be claimed is said by documents alone, and matters only where strategies go by it", () => {
  const flags = { strategies: ["destHost", "default"], strict: true } as const;
  const side = {};
  const claims = new Claims([]);
  assert.deepEqual(routingRules(side, flags, true), { ...flags, claims: undefined });
  assert.deepEqual(routingRules(side, flags, false).claims?.texts, []);
  assert.equal(routingRules({ ...side, claims }, flags, false).claims, claims);
  assert.equal(routingRules({ ...side, strategies: ["default"] }, flags, false).claims, undefined);
  const own = { strategies: ["cidr"], strictIdentifiers: false } as const;
  assert.deepEqual(routingRules({ ...side, ...own, claims }, flags, false), {
    strategies: ["cidr"],
    strict: false,
    claims,
  });
});

const LINES = 20;

/** A log of agents of one identity, as many of which are connected as `connected` says. */
function logOf() {
  const lines: Line[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = new ThrottledLog(createLogger({ level: "debug", format: "json", name: "server", destination }));
  const identity = "CN=agent";
  const it = {
    connected: 1,
    lines,
    tell: (agentId: string) => {
      const budgets = agentBudgets({ cluster, identity, agentId });
      log.write("info", { agent: agentId }, "tunnel opened", { budgets });
    },
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
