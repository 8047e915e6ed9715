import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { missingProgram } from "../proxies/harness/missing.ts";
import { render } from "./harness/helm.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { checkFiring, checkRules, type Series } from "./harness/promtool.ts";

interface Rules {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
}
interface Rule {
  readonly alert: string;
  readonly labels: Readonly<Record<string, string>>;
}

const SERVER = 'namespace="culvert",job="culvert-server-pods",pod="server-0"';
const OTHER_SERVER = 'namespace="culvert",job="culvert-server-pods",pod="server-1"';
const AGENT = 'namespace="culvert",job="culvert/culvert-agent",pod="agent-0"';
const IN_90_DAYS = `${90 * 86_400}x180`;
const IN_10_DAYS = `${10 * 86_400}x180`;
const ALWAYS_0 = "0x180";
const EACH_MINUTE = "0+60x180";

const AGENTS = `culvert_server_agents{${SERVER},cluster="blue"}`;
const AGENTS_OF_OTHER = `culvert_server_agents{${OTHER_SERVER},cluster="blue"}`;
const REFUSED = `culvert_server_dial_duration_seconds_count{${SERVER},outcome="no_agent"}`;
const FAST = `culvert_server_dial_duration_seconds_bucket{${SERVER},outcome="ok",le="0.1"}`;
const ALL = `culvert_server_dial_duration_seconds_bucket{${SERVER},outcome="ok",le="+Inf"}`;
const SERVER_CERTIFICATE = `culvert_certificate_expiry_timestamp_seconds{${SERVER},role="agents_cert"}`;
const AGENT_CERTIFICATE = `culvert_certificate_expiry_timestamp_seconds{${AGENT},role="agent_cert"}`;
const AGENT_CA = `culvert_certificate_expiry_timestamp_seconds{${AGENT},role="server_ca"}`;
const CUTS = `culvert_server_link_suspensions_total{${SERVER},cause="reset"}`;
const LESSONS = `culvert_agent_path_lessons_total{${AGENT},lesson="age_limit"}`;
const FAULTS = `culvert_server_cluster_faults{${SERVER}}`;
const REVIEWS = `culvert_server_token_review_failing{${SERVER}}`;

/** Two servers with an agent each, one dial a second, certificates that are good for long. */
const WELL: Series = {
  [AGENTS]: "1x180",
  [AGENTS_OF_OTHER]: "1x180",
  [REFUSED]: ALWAYS_0,
  [FAST]: EACH_MINUTE,
  [ALL]: EACH_MINUTE,
  [SERVER_CERTIFICATE]: IN_90_DAYS,
  [AGENT_CERTIFICATE]: IN_90_DAYS,
  [AGENT_CA]: IN_90_DAYS,
  // A token lives for an hour: its end is no reason to call anybody.
  [`culvert_certificate_expiry_timestamp_seconds{${AGENT},role="token"}`]: "3600+60x180",
  [CUTS]: ALWAYS_0,
  [LESSONS]: ALWAYS_0,
  [FAULTS]: ALWAYS_0,
  [REVIEWS]: ALWAYS_0,
};

/** What happens, in which series, and the alerts that fire two hours later. */
const CASES: readonly (readonly [sentence: string, series: Series, alerts: readonly string[]])[] = [
  ["nothing fires when all is well", {}, []],
  [
    "a cluster without an agent fires",
    { [AGENTS]: ALWAYS_0, [AGENTS_OF_OTHER]: ALWAYS_0 },
    ["CulvertNoAgent", "CulvertServerWithoutAgent"],
  ],
  ["a server without an agent beside one that has one fires", { [AGENTS]: ALWAYS_0 }, ["CulvertServerWithoutAgent"]],
  ["dials that are refused fire", { [REFUSED]: EACH_MINUTE }, ["CulvertDialsRefused"]],
  ["slow dials fire", { [FAST]: ALWAYS_0, [ALL.replace("+Inf", "5")]: EACH_MINUTE }, ["CulvertDialsSlow"]],
  ["a certificate of the server near its end fires", { [SERVER_CERTIFICATE]: IN_10_DAYS }, ["CulvertCertificateEnds"]],
  [
    "a copied certificate of an agent near its end fires",
    { [AGENT_CERTIFICATE]: IN_10_DAYS },
    ["CulvertAgentCertificateEnds"],
  ],
  ["a copied CA of an agent near its end fires", { [AGENT_CA]: IN_10_DAYS }, ["CulvertAgentCertificateEnds"]],
  ["links that are cut each minute fire", { [CUTS]: "0+1x180" }, ["CulvertLinksCut"]],
  ["the first lesson of an agent fires", { [LESSONS]: "0x90 1x90" }, ["CulvertPathCutsLearned"]],
  ["faults in files of clusters fire", { [FAULTS]: "1x180" }, ["CulvertClusterFaults"]],
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
        .toSorted(),
      [...fired].toSorted(),
    );
  });

  test("no server that is scraped fires", () => {
    const agents = Object.entries(WELL).filter(([name]) => name.includes(AGENT));
    checkFiring(rules, Object.fromEntries(agents), 5, ["CulvertServerDown"]);
  });

  test("servers that are no longer scraped fire", () => {
    const series = { ...WELL, [AGENTS]: "1x110 stale", [AGENTS_OF_OTHER]: "1x110 stale" };
    checkFiring(rules, series, 120, ["CulvertServerDown"]);
  });

  test("agents and servers of another namespace make nothing fire", () => {
    const bad: Series = {
      [AGENTS]: ALWAYS_0,
      [SERVER_CERTIFICATE]: IN_10_DAYS,
      [AGENT_CERTIFICATE]: IN_10_DAYS,
      [LESSONS]: "0x90 1x90",
    };
    const elsewhere = Object.entries(bad).map(([name, values]) => [
      name.replace('namespace="culvert"', 'namespace="other"'),
      values,
    ]);
    checkFiring(rules, { ...WELL, ...Object.fromEntries(elsewhere) }, 120, []);
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
      checkFiring(ofFleet, { ...WELL, [up]: "1x180", [ofOther]: "1x180", [AGENTS]: ALWAYS_0 }, 120, []);
    });
  });

  test("agents in a namespace of their own fire where the values name it", async () => {
    const named = await rulesWith({ agentsNamespace: "kube-system" });
    const series = { [AGENT_CERTIFICATE.replace('namespace="culvert"', 'namespace="kube-system"')]: IN_10_DAYS };
    checkFiring(named, { ...WELL, ...series }, 120, ["CulvertAgentCertificateEnds"]);
  });

  test("a severity of the values takes the place of the chart's", async () => {
    const severities = alertsOf(await rulesWith({ alertLabels: { severity: "page", team: "platform" } }));
    for (const { alert, labels } of severities) assert.deepEqual(labels, { severity: "page", team: "platform" }, alert);
    assert.equal(alertsOf(rules).find(({ alert }) => alert === "CulvertNoAgent")?.labels["severity"], "critical");
  });
});

async function rulesWith(
  ofRule: Readonly<Record<string, unknown>>,
  values: Readonly<Record<string, unknown>> = {},
): Promise<Rules> {
  const { objects } = await render({
    name: "with alerts",
    chart: "culvert-server",
    values: { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true, ...ofRule }, ...values },
  });
  const rule = objects.find(({ kind }) => kind === "PrometheusRule") as { readonly spec?: Rules } | undefined;
  assert.ok(rule?.spec, "the chart renders a PrometheusRule");
  return rule.spec;
}

function alertsOf({ groups }: Rules): readonly Rule[] {
  return groups.flatMap(({ rules }) => rules);
}
