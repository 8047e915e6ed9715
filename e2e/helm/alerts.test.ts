import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { missingProgram } from "../proxies/harness/missing.ts";
import {
  AGENT,
  AGENT_CA,
  AGENT_CERTIFICATE,
  AGENTS,
  AGENTS_OF_OTHER,
  ALL,
  ALWAYS_0,
  AUDIT_LOST,
  alertsOf,
  BUILD,
  BUILD_OF_OTHER,
  CUTS,
  EACH_MINUTE,
  endsIn10Days,
  FAST,
  FAULTS,
  LESSONS,
  LOST,
  lifeOf,
  NEVER,
  OTHER_SERVER,
  REFUSED,
  REVIEWS,
  type Rules,
  rulesWith,
  SERVER,
  SERVER_CERTIFICATE,
  UP,
  UP_OF_OTHER,
  WELL,
} from "./harness/alerts.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { checkFiring, checkFiringBy, checkRules, type Series } from "./harness/promtool.ts";

/** An event, its series, and the alerts that fire two hours later. */
const CASES: readonly (readonly [sentence: string, series: Series, alerts: readonly string[]])[] = [
  ["nothing fires when all is well", {}, []],
  ["a cluster that has lost its agents fires", { [AGENTS]: LOST, [AGENTS_OF_OTHER]: LOST }, ["CulvertNoAgent"]],
  [
    "a cluster that never had an agent is another alert",
    { [AGENTS]: NEVER, [AGENTS_OF_OTHER]: NEVER },
    ["CulvertNoAgentYet"],
  ],
  [
    "a cluster whose document has just appeared does not fire",
    { [AGENTS]: "_x100 0x80", [AGENTS_OF_OTHER]: "_x100 0x80" },
    [],
  ],
  [
    "a suspended cluster does not fire, whoever still asks for it",
    {
      ...{ [AGENTS]: "1x30 stale", [AGENTS_OF_OTHER]: "1x30 stale" },
      [`culvert_server_connections{${SERVER},cluster="blue"}`]: ALWAYS_0,
      [`culvert_server_connections_total{${SERVER},cluster="blue",outcome="forbidden"}`]: EACH_MINUTE,
      [REFUSED.replace("no_agent", "forbidden")]: EACH_MINUTE,
    },
    [],
  ],
  [
    "one of two servers that is not scraped fires",
    { [UP]: "1x30 0x150", [BUILD]: "1x30 stale" },
    ["CulvertServerDown"],
  ],
  ["a server without an agent beside one that has one fires", { [AGENTS]: ALWAYS_0 }, ["CulvertServerWithoutAgent"]],
  ["dials that are refused fire", { [REFUSED]: EACH_MINUTE }, ["CulvertDialsRefused"]],
  ["slow dials fire", { [FAST]: ALWAYS_0, [ALL.replace("+Inf", "5")]: EACH_MINUTE }, ["CulvertDialsSlow"]],
  [
    "a certificate of the server near its end fires",
    { ...endsIn10Days(SERVER_CERTIFICATE) },
    ["CulvertCertificateEnds"],
  ],
  ["a certificate of a day with 5 hours left does not fire", lifeOf(SERVER_CERTIFICATE, -19, 7), []],
  ["a certificate of a day with 3 hours left fires", lifeOf(SERVER_CERTIFICATE, -19, 5), ["CulvertCertificateEnds"]],
  ["a CA of ten years with 60 days left does not fire", lifeOf(SERVER_CERTIFICATE, -86_000, 60 * 24), []],
  [
    "a CA of ten years with 20 days left fires",
    lifeOf(SERVER_CERTIFICATE, -87_000, 20 * 24),
    ["CulvertCertificateEnds"],
  ],
  [
    "a copied certificate of an agent near its end fires",
    endsIn10Days(AGENT_CERTIFICATE),
    ["CulvertAgentCertificateEnds"],
  ],
  ["a copied CA of an agent near its end fires", endsIn10Days(AGENT_CA), ["CulvertAgentCertificateEnds"]],
  ["links that are cut each minute fire", { [CUTS]: "0+1x180" }, ["CulvertLinksCut"]],
  ["the first lesson of an agent fires", { [LESSONS]: "0x90 1x90" }, ["CulvertPathCutsLearned"]],
  ["faults in files of clusters fire", { [FAULTS]: "1x180" }, ["CulvertClusterFaults"]],
  ["a server that loses lines of its audit trail fires", { [AUDIT_LOST]: "0x115 3x65" }, ["CulvertAuditLinesLost"]],
  ["a server that has lost lines of its audit trail an hour ago does not fire", { [AUDIT_LOST]: "0x60 3x120" }, []],
  ["tokens that cannot be verified fire", { [REVIEWS]: "1x180" }, ["CulvertTokensNotVerified"]],
];

describe("the alerts of culvert-server", { skip: helmMissing() || missingProgram("promtool") }, () => {
  let rules: Rules;
  before(async () => {
    rules = await rulesWith({});
  });

  test("promtool takes the rules", () => checkRules(rules));

  for (const [sentence, series, alerts] of CASES) {
    test(sentence, () => checkFiring(rules, { ...WELL, ...series }, 120, alerts));
  }

  test("each alert fires in one of these cases", () => {
    const fired = new Set(["CulvertServerDown", ...CASES.flatMap(([, , alerts]) => alerts)]);
    assert.deepEqual(
      alertsOf(rules)
        .map(({ alert }) => alert)
        .filter((alert, index, all) => all.indexOf(alert) === index)
        .toSorted(),
      [...fired].toSorted(),
    );
  });

  test("no server that is scraped fires", () => {
    const agents = Object.entries(WELL).filter(([name]) => name.includes(AGENT));
    checkFiring(rules, Object.fromEntries(agents), 5, ["CulvertServerDown"]);
  });

  test("servers that are no longer scraped fire", () => {
    const gone = Object.fromEntries(
      [AGENTS, AGENTS_OF_OTHER, BUILD, BUILD_OF_OTHER].map((one) => [one, "1x110 stale"]),
    );
    const series = { ...WELL, ...gone, [UP]: "1x110 0x70", [UP_OF_OTHER]: "1x110 0x70" };
    checkFiring(rules, series, 120, ["CulvertServerDown"]);
  });

  test("agents and servers of another namespace make nothing fire", () => {
    const bad: Series = {
      [AGENTS]: LOST,
      ...endsIn10Days(SERVER_CERTIFICATE),
      ...endsIn10Days(AGENT_CERTIFICATE),
      [LESSONS]: "0x90 1x90",
    };
    const elsewhere = Object.entries(bad).map(([name, values]) => [
      name.replace('namespace="culvert"', 'namespace="other"'),
      values,
    ]);
    checkFiring(rules, { ...WELL, ...Object.fromEntries(elsewhere) }, 120, []);
  });

  test("a cluster whose agents were lost long ago still fires as that", () => {
    const series = { ...WELL, [AGENTS]: LOST, [AGENTS_OF_OTHER]: LOST };
    checkFiring(rules, series, 29, []);
    checkFiring(rules, series, 550, ["CulvertNoAgent"]);
    checkFiring(rules, { ...series, [AGENTS]: "1x30 0x500 1x70" }, 550, ["CulvertServerWithoutAgent"]);
  });

  test("a server that is missing among the replicas fires", async () => {
    const ofThree = await rulesWith({}, { replicas: 3 });
    checkFiring(ofThree, WELL, 120, ["CulvertServerDown"]);
    checkFiring(ofThree, { ...WELL, [`up{${SERVER.replace("server-0", "server-2")}}`]: "1x180" }, 120, []);
  });

  test("each cluster whose CONNECTs are refused is an alert of its own, where the samples name clusters", () => {
    const of = (cluster: string, outcome: string) =>
      `culvert_server_connections_total{${SERVER},cluster="${cluster}",outcome="${outcome}"}`;
    const series = {
      ...{ [of("blue", "no_agent")]: EACH_MINUTE, [of("red", "dial_refused")]: EACH_MINUTE },
      ...{ [of("green", "ok")]: EACH_MINUTE, [of("green", "no_agent")]: "0+1x180" },
      [REFUSED]: EACH_MINUTE,
    };
    checkFiringBy(["alertname", "cluster", "outcome"], [rules], { ...WELL, ...series }, 120, [
      { alertname: "CulvertDialsRefused", cluster: "blue", outcome: "no_agent" },
      { alertname: "CulvertDialsRefused", cluster: "red", outcome: "dial_refused" },
    ]);
  });

  describe("of a fleet", () => {
    const up = `culvert_server_directory_up{${SERVER}}`;
    const ofOther = `culvert_server_directory_up{${OTHER_SERVER}}`;
    let ofFleet: Rules;
    before(async () => {
      ofFleet = await rulesWith({}, { directory: { urls: ["nats://nats:4222"] } });
    });

    test("promtool takes the rules", () => checkRules(ofFleet));

    test("a server that cannot ask the directory fires, and one minute of it does not", () => {
      checkFiring(ofFleet, { ...WELL, [up]: "1x180", [ofOther]: ALWAYS_0 }, 120, ["CulvertDirectoryDown"]);
      checkFiring(ofFleet, { ...WELL, [up]: "1x180", [ofOther]: "1x119 0 1x60" }, 120, []);
    });

    test("a server without an agent does not fire, since others have one", () => {
      checkFiring(ofFleet, { ...WELL, [up]: "1x180", [ofOther]: "1x180", [AGENTS]: LOST }, 120, []);
    });
  });

  test("agents in a namespace of their own fire where the values name it", async () => {
    const named = await rulesWith({ agentsNamespace: "kube-system" });
    const series = endsIn10Days(AGENT_CERTIFICATE.replace('namespace="culvert"', 'namespace="kube-system"'));
    checkFiring(named, { ...WELL, ...series }, 120, ["CulvertAgentCertificateEnds"]);
  });

  test("a severity of the values takes the place of the chart's", async () => {
    const severities = alertsOf(await rulesWith({ alertLabels: { severity: "page", team: "platform" } }));
    for (const { alert, labels } of severities) assert.deepEqual(labels, { severity: "page", team: "platform" }, alert);
    assert.equal(alertsOf(rules).find(({ alert }) => alert === "CulvertNoAgent")?.labels["severity"], "critical");
  });
});
