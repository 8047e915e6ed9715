import { before, describe, test } from "node:test";
import { missingProgram } from "../proxies/harness/missing.ts";
import { alertsOf, EACH_MINUTE, endsIn10Days, LOST, NEVER, type Rules, rulesWith, WELL } from "./harness/alerts.ts";
import { helmMissing } from "./harness/helm-program.ts";
import { checkFiring, checkFiringBy, checkRules, checkSummaries, type Series } from "./harness/promtool.ts";

const skip = helmMissing() || missingProgram("promtool");

describe("the alerts of two releases of culvert-server", { skip }, () => {
  const PLACES = [
    { namespace: "tenant-a", release: "one" },
    { namespace: "tenant-b", release: "two" },
  ];
  const BOTH = [
    ['namespace="tenant-a",job="one-culvert-server-pods"', "tenant-a", "one-culvert-server"],
    ['namespace="tenant-b",job="two-culvert-server-pods"', "tenant-b", "two-culvert-server"],
  ] as const;
  const ofBoth = (series: (labels: string) => Series): Series =>
    Object.assign({}, ...BOTH.map(([labels]) => series(`${labels},pod="server-0"`)));
  const whole = (labels: string) => ({ [`culvert_build_info{${labels}}`]: "1x600", [`up{${labels}}`]: "1x600" });

  test("a cluster of the same name at both is two alerts, and each names its release", async () => {
    const both = await Promise.all(PLACES.map((place) => rulesWith({}, {}, place)));
    const agents = (labels: string) => `culvert_server_agents{${labels},cluster="blue"}`;
    const certificate = (labels: string) =>
      `culvert_certificate_expiry_timestamp_seconds{${labels},role="agents_cert",cluster="blue"}`;
    const refused = (labels: string) => `culvert_server_connections_total{${labels},cluster="blue",outcome="no_agent"}`;
    const links = (labels: string) => `culvert_server_link_suspensions_total{${labels},cause="reset"}`;
    const series = ofBoth((labels) => ({
      ...{ ...whole(labels), [agents(labels)]: LOST, [refused(labels)]: EACH_MINUTE, [links(labels)]: "0+1x180" },
      ...endsIn10Days(certificate(labels)),
    }));
    const names = ["CulvertNoAgent", "CulvertDialsRefused", "CulvertCertificateEnds", "CulvertLinksCut"];
    checkFiringBy(
      ["alertname", "namespace", "job"],
      both,
      series,
      120,
      names.flatMap((alertname) => BOTH.map(([, namespace, name]) => ({ alertname, namespace, job: `${name}-pods` }))),
    );
    for (const [alert, of, says] of [
      ["CulvertNoAgent", {}, (at: string) => `No agent of cluster blue is connected to culvert any more (${at}).`],
      [
        "CulvertCertificateEnds",
        { role: "agents_cert", pod: "server-0" },
        (at: string) => `The certificate or CA agents_cert of cluster blue of culvert (${at}) ends in 9d 22h 0m 0s.`,
      ],
    ] as const) {
      const rule = alertsOf(both[0] as Rules).find((each) => each.alert === alert);
      const description = rule?.annotations["description"] ?? "";
      const expected = BOTH.map(([, namespace, name]) => ({
        labels: { ...rule?.labels, ...of, namespace, job: `${name}-pods`, cluster: "blue" },
        ...{ description, summary: says(`${namespace}/${name}`) },
      }));
      checkSummaries(expected, { alert, rules: both, series, minute: 120 });
    }
  });

  test("no server of one of them is that release's alert", async () => {
    const both = await Promise.all(PLACES.map((place) => rulesWith({}, {}, place)));
    checkFiringBy(["alertname", "namespace", "job"], both, whole(`${BOTH[0][0]},pod="server-0"`), 120, [
      { alertname: "CulvertServerDown", namespace: "tenant-b", job: "two-culvert-server-pods" },
    ]);
  });

  test("of one fleet: an agent at either of them is enough, and without any it is one alert that names the fleet", async () => {
    const directory = { urls: ["nats://b:4222", "nats://a:4222"] };
    const other = { urls: directory.urls.toReversed() };
    const both = await Promise.all([
      rulesWith({}, { directory }, PLACES[0]),
      rulesWith({}, { directory: other }, PLACES[1]),
    ]);
    const culvert_fleet = "nats://a:4222,nats://b:4222";
    const agents = (index: 0 | 1) =>
      `culvert_server_agents{${BOTH[index][0]},pod="server-0",culvert_fleet="${culvert_fleet}",cluster="blue"}`;
    const fleet = ofBoth(whole);
    checkFiringBy(["alertname"], both, { ...fleet, [agents(0)]: NEVER, [agents(1)]: "1x600" }, 120, []);
    checkFiringBy(
      ["alertname", "culvert_fleet", "cluster"],
      both,
      { ...fleet, [agents(0)]: LOST, [agents(1)]: LOST },
      120,
      [{ alertname: "CulvertNoAgent", culvert_fleet, cluster: "blue" }],
    );
  });
});

describe("the alerts of a router", { skip }, () => {
  const ROUTER = 'namespace="culvert",job="culvert/culvert-server-router"';
  const routers = (series: Series = {}): Series => ({
    ...{ ...WELL, [`up{${ROUTER},pod="r-0"}`]: "1x180", [`up{${ROUTER},pod="r-1"}`]: "1x180" },
    ...{ [`culvert_router_routes{${ROUTER},pod="r-0"}`]: "1x180", ...series },
  });
  let ofRouter: Rules;
  before(async () => {
    ofRouter = await rulesWith({}, { router: { enabled: true }, agents: { hosts: ["a.example.com"] } });
  });

  test("promtool takes the rules", () => checkRules(ofRouter));

  test("none, one of two, a backend that is not reached and faults of routes fire, and names that nobody has do not", () => {
    const refused = (reason: string) =>
      `culvert_router_connections_refused_total{${ROUTER},pod="r-0",reason="${reason}"}`;
    const cases: readonly (readonly [Series, readonly string[]])[] = [
      [routers(), []],
      [WELL, ["CulvertRouterDown"]],
      [routers({ [`up{${ROUTER},pod="r-1"}`]: "1x30 0x150" }), ["CulvertRouterDown"]],
      [routers({ [`up{${ROUTER},pod="r-1"}`]: "1x30 stale" }), ["CulvertRouterDown"]],
      [routers({ [refused("unreachable")]: EACH_MINUTE }), ["CulvertRouterBackendsLost"]],
      [routers({ [refused("unknown_name")]: EACH_MINUTE }), []],
      [routers({ [`culvert_router_route_faults{${ROUTER},pod="r-0"}`]: "1x180" }), ["CulvertRouterRouteFaults"]],
    ];
    for (const [series, alerts] of cases) checkFiring(ofRouter, series, 120, alerts);
  });
});
