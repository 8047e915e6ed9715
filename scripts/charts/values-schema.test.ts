import assert from "node:assert/strict";
import { test } from "node:test";
import { Ajv, type ValidateFunction } from "ajv";
import { defineOptions, type OptionTable, option } from "../../shared/config/options.ts";
import { parseChartOptions } from "./chart-options.ts";
import { clusterDocumentsSchema } from "./cluster-documents.ts";
import { parseValues } from "./values-file.ts";
import { valuesSchema } from "./values-schema.ts";

const server = tableOf("server", {
  healthPort: option.port(8092, "Port of health."),
  keepaliveMs: option.duration("20s", "Interval of pings."),
  drainTimeoutMs: option.duration("30s", "Drain.", { konnectivity: "--graceful-shutdown-timeout" }),
});
const router = tableOf("router", { routes: option.string("", "Routes.") });
const TABLES = new Map([server, router].map((table) => [table.command, table]));

function tableOf(command: string, options: OptionTable["options"]): OptionTable {
  return defineOptions({ command, summary: "", envPrefix: "X", example: [], options, foreign: {}, resolve: () => {} });
}

function schemaOf(text: string, chartOptions = "{}"): ReturnType<typeof valuesSchema> {
  const values = parseValues(text, "values.yaml");
  const own = parseChartOptions(chartOptions, "chart-options.yaml", TABLES, values);
  return valuesSchema({ chart: "sample", values, table: server, tables: TABLES, chartOptions: own });
}

function validatorOf(text: string, chartOptions?: string): ValidateFunction {
  return new Ajv().compile(schemaOf(text, chartOptions));
}

test("the type of a value is that of its default, its choices and its name", () => {
  const table: [yaml: string, good: unknown[], bad: unknown[]][] = [
    ["# -- A text.\nvalue: a", ["b", ""], [1, null]],
    ["# -- A switch.\nvalue: true", [false], ["false"]],
    ["# -- A number.\nvalue: 2", [0, 9], [-1, 1.5, "2"]],
    ["# -- A share.\nvalue: 0.5", [1, 0.25], [-1]],
    ["# -- A number, or the preset's.\nvalue: -1", [-1, 5], [-2]],
    ["# -- One of a, b.\nvalue: a", ["a", "b"], ["c", ""]],
    ["# -- Perhaps. One of a.b/v1, c, or empty. More.\nvalue: ''", ["a.b/v1", "c", ""], ["more"]],
    ["# -- One of many words.\nvalue: a", ["b"], [1]],
    ["# -- One of them.\nvalue: a", ["b"], [1]],
    ["# -- Each one of a, b.\nvalue: [a]", [[], ["a", "b"]], [["c"], "a"]],
    ["# -- Names.\nvalue: [a]", [["b"]], [[1], "a"]],
    ["# -- Whatever is wanted.\nvalue: {a: 1}", [{ b: "c" }, {}], ["a"]],
    ["# -- A port.\nvaluePort: 80", [0, 65_535], [65_536]],
    ["# -- Words.\npodAnnotations: {}", [{ a: "b" }], [{ a: true }]],
    ["# -- What may be gone.\nmaxUnavailable: 1", [2, "50%", "100%"], [true, -1, "1", "101%", "half"]],
    [
      "# -- Names.\nhosts: []",
      [["a-1.example.com", "*.example.com", "192.0.2.1", "2001:db8::1", "::1", "dead::beef"]],
      [["https://a"], ["a:443"], ["192.0.2.1:443"], ["a/b"], ["a b"], [""], ["-a"], ["*"], [1]],
    ],
    [
      "# -- Networks.\nloadBalancerSourceRanges: []",
      [["203.0.113.0/24", "0.0.0.0/0", "2001:db8::/32", "::/0", "::ffff:192.0.2.0/120"]],
      [["203.0.113.7"], ["203.0.113.0/33"], ["256.0.0.0/8"], ["2001:db8::/129"], ["a/8"], [""]],
    ],
    ["# -- Arguments.\nextraArgs: []", [["--log-level=debug", "--drain-timeouts"]], [[1], ["--drain-timeout=10m"]]],
    ["# -- More volumes.\nextraVolumes: []", [[{ name: "a" }]], [[{}], ["a"]]],
    ["# -- An option.\n# @option keepalive\nvalue: 20s", ["8s"], ["8"]],
    ['# -- Digits.\n# @schema {pattern: "^[0-9]*$", x-hint: "digits"}\nvalue: ""', ["1"], ["a"]],
    ["# -- A number or nothing.\n# @schema {type: [integer, 'null']}\nvalue: null", [1, null], ["a"]],
  ];
  for (const [yaml, good, bad] of table) {
    const validate = validatorOf(yaml);
    const key = /^(\w+):/m.exec(yaml)?.[1] as string;
    for (const value of good) assert.ok(validate({ [key]: value }), `${yaml}\ntakes ${JSON.stringify(value)}`);
    for (const value of bad) assert.ok(!validate({ [key]: value }), `${yaml}\nrefuses ${JSON.stringify(value)}`);
  }
});

test("a hint is the message, in place of the pattern, also for the items of a list", () => {
  const validate = validatorOf(
    '# -- URLs.\n# @schema {items: {type: string, pattern: "^wss:", x-hint: "a URL"}}\nservers: []',
  );
  assert.ok(!validate({ servers: ["https://a"] }));
  assert.equal(validate.errors?.[0]?.params["allowedValue"], "a URL");
});

test("a map whose keys are described takes no others, at every depth", () => {
  const validate = validatorOf("image:\n  # -- Its tag.\n  tag: ''\n");
  assert.ok(validate({ image: { tag: "1" } }));
  assert.ok(!validate({ image: { tga: "1" } }));
  assert.ok(!validate({ imgae: {} }));
  assert.ok(validate({ global: { of: "the parent chart" }, enabled: false }));
});

const OPTIONS = `# -- Options of the server.
options: {}
ports:
  # -- Port of health.
  health: 8092
router:
  # -- Options of the router.
  options: {}
`;

test("options are those of the chart's command, and of the command that their parent is called after", () => {
  const validate = validatorOf(OPTIONS);
  assert.ok(validate({ options: { keepalive: "30s" }, router: { options: { routes: "/etc/routes" } } }));
  for (const values of [
    { options: { keepalive: 30 } },
    { options: { keepAlive: "30s" } },
    { options: { routes: "/etc/routes" } },
    { router: { options: { keepalive: "30s" } } },
  ]) {
    assert.ok(!validate(values), JSON.stringify(values));
  }
});

test("an option that the chart sets itself is refused with the value to set in its place", () => {
  const validate = validatorOf(OPTIONS, "server: {health-port: ports.health}");
  assert.ok(!validate({ options: { "health-port": 8092 } }));
  assert.equal(validate.errors?.[0]?.params["allowedValue"], "absent here: set ports.health instead");
});

test("an argument that a template computes something from is refused with the option of its command", () => {
  const validate = validatorOf(`${OPTIONS}  # -- Arguments.\n  extraArgs: []\n# -- Arguments.\nextraArgs: []\n`);
  for (const argument of ["--drain-timeout", "--drain_timeout=1m", "--graceful-shutdown-timeout=1m"]) {
    assert.ok(!validate({ extraArgs: [argument] }));
    assert.match(
      String(validate.errors?.[0]?.params["allowedValue"]),
      /^absent here: set options.drain-timeout instead/,
    );
  }
  assert.ok(validate({ router: { extraArgs: ["--drain-timeout=1m"] } }), "a command without this option");
});

test("documents of clusters have the keys that the server reads, and values as YAML writes them", () => {
  const schema = { properties: { documents: clusterDocumentsSchema() } };
  const validate = new Ajv({ allowUnionTypes: true }).compile(schema);
  const blue = { agents: { sni: ["a"], maxAgents: 20, token: { tokenReview: tokenReview() } }, suspended: true };
  assert.ok(validate({ documents: { blue, red: { limits: { bytesPerSecond: "50MiB" } }, green: {} } }));
  for (const wrong of [
    { agnets: {} },
    { agents: { sni: "a" } },
    { limits: { streams: [1] } },
    { suspended: {} },
    "a",
  ]) {
    assert.ok(!validate({ documents: { blue: wrong } }), JSON.stringify(wrong));
  }
});

function tokenReview(): object {
  return { audience: "culvert", agentNamespace: "culvert", agentServiceAccount: "agent" };
}

test("chart options that nobody has, and values without a type, are refused", () => {
  const table: [chartOptions: string, message: RegExp][] = [
    ["agent: {}", /has no command agent with options/],
    ["server: {helth-port: ports.health}", /culvert server has no option helth-port/],
    ["server: {health-port: port.health}", /names the value port.health, which values.yaml does not have/],
  ];
  for (const [chartOptions, message] of table) assert.throws(() => schemaOf(OPTIONS, chartOptions), { message });
  assert.throws(() => schemaOf("# -- An option.\n# @option nothing\na: 1"), {
    message: /a: culvert server has no option/,
  });
  assert.throws(() => schemaOf("# -- What is it?\na: null"), { message: /a has no default that tells its type/ });
});
