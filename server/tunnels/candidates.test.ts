import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type AgentIdentifiers, parseIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { Target } from "../../shared/address/target.ts";
import { Cancellation } from "../../shared/basics/promises.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { ALL_ALIKE, Claims, type RoutingRules } from "../clusters/routing-rules.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import { type FakeAgent, type FakeAgentOptions, fakeAgent, openOptions } from "./testing/fake-agent.ts";

const LIMITS = { serverId: "srv", maxAgents: 10_000, drainTimeoutMs: 50 };

/** A cluster with agents by their identifiers in Konnectivity's form. */
class RoutedWorld {
  readonly cluster = new ClusterTunnels("blue", LIMITS);
  readonly #agents = new Map<string, { readonly agent: FakeAgent; leave(): void }>();

  constructor(rules: Partial<RoutingRules>, identifiers: Readonly<Record<string, string>> = {}) {
    this.cluster.rules = { ...ALL_ALIKE, ...rules };
    for (const [agentId, query] of Object.entries(identifiers)) this.join(agentId, parseIdentifiers([query]));
    after(() => {
      for (const { agent } of this.#agents.values()) agent.cut();
    });
  }

  join(agentId: string, identifiers: AgentIdentifiers, options: FakeAgentOptions = {}): FakeAgent {
    const agent = fakeAgent({ agentId, identifiers, onStream: (stream) => stream.accept(), ...options });
    const place = this.cluster.places.reserve({ agentId, instance: "1", identity: "CN=agent" });
    place.join(agent.tunnel);
    const leave = () => {
      agent.cut();
      place.leave();
    };
    this.#agents.set(agentId, { agent, leave });
    return agent;
  }

  leave(agentId: string): void {
    this.#agents.get(agentId)?.leave();
  }

  agent(agentId: string): FakeAgent {
    return this.#agents.get(agentId)?.agent ?? assert.fail(agentId);
  }

  /** The agent that is picked for a host, and the strategy that has chosen it; `*`: it passes a claim over. */
  chosen(host: string): string {
    const candidates = this.cluster.candidates(to(host));
    const tunnel = candidates.pick();
    const choice = tunnel && candidates.choiceOf(tunnel);
    if (tunnel === undefined) return "none";
    const passedOver = choice?.claimedBy === undefined ? "" : ` *${choice.claimedBy}`;
    return `${tunnel.agent.agentId} ${choice?.strategy ?? "any"}${passedOver}`;
  }

  refusal(host: string): string {
    const { code, message } = this.cluster.candidates(to(host)).noAgent();
    return `${code}: ${message}`;
  }
}

function to(host: string): Target {
  return { host, port: 443 };
}

test("the first strategy that has an agent for the host chooses it", () => {
  const agents = { a: "ipv4=172.30.1.5&host=api.example", b: "default-route=true", c: "cidr=172.30.0.0/16", d: "" };
  const cases: [RoutingRules["strategies"], Readonly<Record<string, string>>][] = [
    [
      ["destHost", "defaultRoute"],
      { "172.30.1.5": "a destHost", "172.30.9.9": "b defaultRoute", "x.example": "b defaultRoute" },
    ],
    [
      ["destHost"],
      { "172.30.1.5": "a destHost", "API.example.": "a destHost", "172.30.9.9": "none", "x.example": "none" },
    ],
    [
      ["destHost", "cidr", "defaultRoute"],
      { "172.30.1.5": "a destHost", "172.30.9.9": "c cidr", "10.0.0.1": "b defaultRoute" },
    ],
    [
      ["cidr", "destHost"],
      { "172.30.1.5": "c cidr", "::ffff:172.30.9.9": "c cidr", "api.example": "a destHost", "fd00::1": "none" },
    ],
    [["defaultRoute", "destHost"], { "172.30.1.5": "b defaultRoute" }],
  ];
  for (const [strategies, expected] of cases) {
    const world = new RoutedWorld({ strategies }, agents);
    const got = Object.fromEntries(Object.keys(expected).map((host) => [host, world.chosen(host)]));
    assert.deepEqual(got, expected, String(strategies));
  }
});

test("of several networks the longest chooses, and a shorter one when its agents are gone", () => {
  const world = new RoutedWorld(
    { strategies: ["cidr", "default"] },
    { wide: "cidr=10.0.0.0/8", narrow: "cidr=10.1.0.0/16", host: "cidr=10.1.2.3", six: "cidr=fd00::/8" },
  );
  assert.deepEqual(
    ["10.1.2.3", "10.1.2.4", "10.2.0.1", "fd12::1"].map((host) => world.chosen(host)),
    ["host cidr", "narrow cidr", "wide cidr", "six cidr"],
  );
  world.leave("narrow");
  assert.equal(world.chosen("10.1.2.4"), "wide cidr *narrow");
});

test("what nobody may claim any more is remembered no longer, whether its agent has left before or after", () => {
  const may = (hosts: string[], cidrs: string[]) =>
    new Claims([{ identities: ["SUB=*"], hosts, cidrs, defaultRoute: true }]);
  const rules: RoutingRules = {
    ...{ strategies: ["destHost", "cidr", "defaultRoute"], strict: true },
    claims: may(["api.example", "172.30.1.5"], ["10.0.0.0/8"]),
  };
  const agents = { a: "host=api.example&ipv4=172.30.1.5", b: "default-route=true", c: "cidr=10.1.0.0/16" };
  const world = new RoutedWorld(rules);
  for (const [agentId, query] of Object.entries(agents)) {
    world.join(agentId, parseIdentifiers([query]), { identity: "SUB=agent" });
  }
  const hosts = ["api.example", "172.30.1.5", "10.1.2.3"];
  world.leave("c");
  world.cluster.rules = { ...rules, claims: may(["api.example"], []) };
  world.leave("a");
  assert.deepEqual(
    hosts.map((host) => world.chosen(host)),
    ["none", "b defaultRoute", "b defaultRoute"],
  );
});

test("two agents of one host share its streams evenly, and the third gets none", () => {
  const world = new RoutedWorld({ strategies: ["destHost"] }, { a: "host=api.example", b: "host=api.example", c: "" });
  const counts: Record<string, number> = { a: 0, b: 0 };
  for (let i = 0; i < 200; i++) {
    const tunnel = world.cluster.candidates(to("api.example")).pick() ?? assert.fail();
    counts[tunnel.agent.agentId] = (counts[tunnel.agent.agentId] ?? 0) + 1;
    // Half of the streams stay open.
    const cancellation = new Cancellation<CulvertError>();
    if (i % 2 === 1) cancellation.cancel(new CulvertError("caller_gone", "gone"));
    tunnel.open(to("api.example"), openOptions({ cancellation })).catch(() => {});
  }
  assert.ok(Math.abs((counts["a"] ?? 0) - 100) <= 10, JSON.stringify(counts));
  assert.equal((counts["a"] ?? 0) + (counts["b"] ?? 0), 200);
});

test("without its agents a claimed host falls through to the next strategy, which is told apart", () => {
  const world = new RoutedWorld(
    { strategies: ["destHost", "defaultRoute"] },
    { a: "ipv4=172.30.1.5", b: "default-route=true" },
  );
  assert.equal(world.chosen("172.30.1.5"), "a destHost");
  world.agent("a").link.suspend();
  assert.equal(world.chosen("172.30.1.5"), "b defaultRoute *a");
  world.agent("a").link.resume();
  assert.equal(world.chosen("172.30.1.5"), "a destHost");
  world.leave("a");
  assert.equal(world.chosen("172.30.1.5"), "b defaultRoute *a");
  assert.equal(world.chosen("172.30.1.6"), "b defaultRoute");
});

test("with strict identifiers a claimed host never falls through, and the refusal says whose it is", () => {
  const world = new RoutedWorld(
    { strategies: ["destHost", "cidr", "defaultRoute"], strict: true },
    { a: "ipv4=172.30.1.5", b: "default-route=true", wide: "cidr=10.0.0.0/8", narrow: "cidr=10.1.0.0/16" },
  );
  world.agent("a").link.suspend();
  assert.equal(world.chosen("172.30.1.5"), "none");
  assert.match(world.refusal("172.30.1.5"), /^no_agent: agent "a" has lost its connection and is not back yet/);
  world.leave("a");
  for (const spelling of ["172.30.1.5", "::ffff:ac1e:105"]) assert.equal(world.chosen(spelling), "none");
  assert.equal(
    world.refusal("172.30.1.5"),
    'no_agent: 172.30.1.5 is for its own agents alone (strict identifiers), and agent "a", which claims it, is not connected: check that it runs',
  );
  world.leave("narrow");
  assert.deepEqual(
    ["10.1.0.1", "10.2.0.1", "192.0.2.1"].map((host) => world.chosen(host)),
    ["none", "wide cidr", "b defaultRoute"],
  );
  world.join("a2", { ipv4: ["172.30.1.5"] });
  assert.equal(world.chosen("172.30.1.5"), "a2 destHost");
});

test("with strict identifiers the claims of a document hold before an agent has come", () => {
  const claims = new Claims([
    { identities: ["CN=cp"], hosts: ["*.apis.example"], cidrs: ["172.30.0.0/16"], defaultRoute: false },
  ]);
  const rules = { strategies: ["destHost", "default"], claims } as const;
  const strict = new RoutedWorld({ ...rules, strict: true }, { node: "" });
  assert.deepEqual(
    ["172.30.1.5", "a.apis.example", "b.a.apis.example", "10.0.0.1"].map((host) => strict.chosen(host)),
    [...["none", "none"], ...["node default", "node default"]],
  );
  assert.match(
    strict.refusal("172.30.1.5"),
    /^no_agent: 172\.30\.1\.5 is for its own agents alone .* no agent that claims it is connected/,
  );
  const lenient = new RoutedWorld(rules, { node: "" });
  assert.equal(lenient.chosen("172.30.1.5"), "node default *agents.claims");
});

test("a host that no strategy has an agent for is refused with the strategies", () => {
  const world = new RoutedWorld({ strategies: ["destHost", "defaultRoute"] }, { a: "host=a.example" });
  assert.equal(
    world.refusal("b.example"),
    `no_agent: no agent of cluster "blue" serves b.example (destHost, defaultRoute): check the agents' --agent-identifiers`,
  );
  assert.match(
    new RoutedWorld({ strategies: ["destHost"] }).refusal("b.example"),
    /^no_agent: no agent of cluster "blue" is connected/,
  );
});

test("a CONNECT waits for an agent that serves its host, and not for any", async () => {
  const world = new RoutedWorld({ strategies: ["destHost", "defaultRoute"] });
  const waiting = world.cluster.whenAvailable(
    60_000,
    new Cancellation<CulvertError>(),
    world.cluster.candidates(to("a.example")),
  );
  world.join("other", { host: ["b.example"] });
  const right = world.join("right", { host: ["a.example"] });
  assert.equal(await waiting, right.tunnel);
});

test("rules that change count for the agents that are there", () => {
  const world = new RoutedWorld({}, { a: "host=a.example", b: "default-route=true" });
  assert.match(world.chosen("a.example"), / any$/);
  assert.equal(world.cluster.candidates(to("a.example")), world.cluster, "where all are alike nothing is looked up");
  world.cluster.rules = { ...ALL_ALIKE, strategies: ["destHost", "defaultRoute"] };
  assert.deepEqual([world.chosen("a.example"), world.chosen("x.example")], ["a destHost", "b defaultRoute"]);
  world.cluster.rules = ALL_ALIKE;
  assert.match(world.chosen("a.example"), / any$/);
});

test("of claims without an agent a limited number is remembered, the latest", () => {
  const world = new RoutedWorld({ strategies: ["destHost", "cidr", "default"], strict: true }, { node: "" });
  const hosts = (index: number) => Array.from({ length: 32 }, (_, i) => `h${index}-${i}.example`);
  const cidr = (index: number) => Array.from({ length: 32 }, (_, i) => `10.${index}.${i}.0/24`);
  for (let index = 0; index <= 64; index++) {
    world.join(`agent-${index}`, { host: hosts(index), cidr: cidr(index) });
    world.leave(`agent-${index}`);
  }
  assert.equal(world.chosen("h0-0.example"), "node default");
  assert.equal(world.chosen("10.0.0.1"), "node default");
  for (const host of ["h1-0.example", "h64-31.example", "10.1.0.1", "10.64.31.1"])
    assert.equal(world.chosen(host), "none", host);
});
