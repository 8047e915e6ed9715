import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { closeSync, openSync, writeSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { defaultsOf } from "./options.ts";
import { configFile, dir, good, read, table } from "./testing/sample-table.ts";

test("a file has kebab-case or camelCase keys, scalars as they are written, and lists", async () => {
  const config = configFile(`
uds-name: /run/x.sock
udsMode: 0600
agentPort: 9000
dialTimeout: 1m
delete-file: false
targets: [10.0.0.0/8, "a.b"]
identities: CN=x,O=y
sampleId: 1e3
level:
`);
  const values = await good([`--config=${config}`]);
  assert.deepEqual(
    [values.udsName, values.udsMode, values.agentPort, values.dialTimeoutMs, values.deleteFile, values.sampleId],
    ["/run/x.sock", 0o600, 9_000, 60_000, false, "1e3"],
  );
  assert.deepEqual([values.targets, values.identities], [["10.0.0.0/8", "a.b"], ["CN=x,O=y"]]);
  assert.deepEqual(await good(["--config", configFile("# nothing\n")]), defaultsOf(table));
});

test("underscores in the keys of a file equal dashes, as on the command line", async () => {
  const config = configFile("uds_name: /run/x.sock\nbackend_dial_timeout: 1m\nxfr_channel_size: 9\n");
  const { values, problems, warnings } = await read([`--config=${config}`]);
  assert.deepEqual([problems, values.udsName, values.dialTimeoutMs], [[], "/run/x.sock", 60_000]);
  assert.deepEqual(warnings, ["Accepted without effect: --xfr-channel-size (no channels)."]);
});

test("a misspelt key is the only fault: what it would have said is not missed as well", async () => {
  const { problems } = await read(["--window=17KiB", "--config", configFile("uds_nmae: /run/x.sock\n")]);
  assert.equal(problems.length, 1);
  assert.match(problems[0] ?? "", /: uds_nmae is no option\. Did you mean uds-name\?$/);
});

test("a file with an unknown key, a key twice, a list for one value, or no mapping is refused", async () => {
  const cases: [string, RegExp][] = [
    ["uds-nmae: x", /uds-nmae is no option\. Did you mean uds-name\?/],
    ["zzz: x", /zzz is no option\. culvert \w+ --help lists them\.$/],
    ["udsName: a\nuds-name: b", /uds-name sets what .*udsName has set already/],
    ["agent-port: [1, 2]", /agent-port takes one value, not a list/],
    ["agent-port: {a: 1}", /agent-port needs a value or a list of values/],
    ["agent-port: x", /agent-port needs a whole number/],
    ["- a\n- b", /expected "option: value" lines/],
    ["a: [", /Flow sequence|flow/i],
    ["uds-name: a\nuds-name: b", /uds-name is there twice at line 2, column 1/],
    ["mode: http-connect\nmode: grpc", /mode is there twice/],
    ["uds_name: a\nuds-name: b", /uds-name sets what .*uds_name has set already/],
    ["xfr-channel-size: 1\nxfr_channel_size: 2", /xfr_channel_size is there twice/],
    ["uds-name: &a x\nsample-id: *a", /sample-id is an alias .* at line 2, column 12: write the value out/],
    ["uds-name: a\n---\nuds-name: b", /several documents/],
    // Deep enough for a parser to end on the stack, and V8 with it.
    [`targets: ${"[".repeat(100_000)}`, /nested too deeply/],
    ["- ".repeat(100_000), /nested too deeply/],
    ["targets: [[[x]]]", /targets needs a value or a list of values/],
    ["[a, b]: x", /has a list or a mapping as a key at line 1, column 1/],
    ['"a\\0b": x', /: a.?b is no option/],
    ["constructor: x", /constructor is no option/],
    ["__proto__: x", /is no option/],
  ];
  for (const [text, pattern] of cases) {
    const { problems } = await read(["--config", configFile(text)]);
    assert.equal(problems.length >= 1, true, text);
    assert.match(problems[0] ?? "", pattern, text);
  }
  assert.match((await read(["--config=/no/such/file"])).problems[0] ?? "", /--config: \/no\/such\/file does not exist/);
});

test("a file that cannot be used is the only fault: what it would have said is not missed as well", async () => {
  const window = "--window=17KiB";
  assert.deepEqual((await read([window, `--config=${dir}`])).problems, [
    `--config: ${dir} is a directory, not a file.`,
  ]);
  assert.equal((await read([window, "--config", configFile("a: [")])).problems.length, 1);
  assert.deepEqual((await read(["--config="])).problems, ["--config needs a value."]);
});

test("a file without an end, or with more faults than anybody reads, is cut short", async () => {
  assert.deepEqual((await read(["--config=/dev/zero"])).problems, ["--config: /dev/zero is larger than 1 MiB."]);
  const keys = Array.from({ length: 5_000 }, (_, i) => `k${i}: x`).join("\n");
  const { problems } = await read(["--config", configFile(keys)]);
  assert.equal(problems.length, 21);
  assert.equal(problems.at(-1), "These are the first 20 faults of the file.");
});

test("a pipe is read to its end, whether its writer comes before or after the reader", async () => {
  for (const delay of ["0", "0.2"]) {
    const pipe = join(dir, `pipe-${delay}`);
    execFileSync("mkfifo", [pipe]);
    const writer = spawn("sh", ["-c", 'sleep "$0"; (echo agent-port:; sleep 0.1; echo "  9000") > "$1"', delay, pipe]);
    const values = await good([`--config=${pipe}`]);
    writer.kill();
    assert.equal(values.agentPort, 9_000);
  }
});

test("a pipe that nobody writes to, or whose writer does not end, is a fault after 10 s", {
  timeout: 20_000,
}, async (t) => {
  const pipe = join(dir, "silent");
  execFileSync("mkfifo", [pipe]);
  for (const text of ["", "agent-port: 9000\n"]) {
    // A pipe that is open for reading and writing has a writer without an end.
    const writer = text === "" ? undefined : openSync(pipe, "r+");
    if (writer !== undefined) writeSync(writer, text);
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const reading = read([`--config=${pipe}`]);
    t.mock.timers.tick(10_000);
    t.mock.timers.reset();
    const fault = `--config: cannot read ${pipe} (a pipe, and its writer has not ended within 10 s).`;
    assert.deepEqual((await reading).problems, [fault]);
    if (writer !== undefined) closeSync(writer);
  }
});

test("a YAML bomb is refused instead of unfolded", async () => {
  const levels = Array.from({ length: 12 }, (_, i) => `l${i + 1}: &l${i + 1} [${Array(10).fill(`*l${i}`).join(", ")}]`);
  const { problems } = await read(["--config", configFile(["l0: &l0 [x]", ...levels].join("\n"))]);
  assert.ok(problems.length > 0);
});

test("a variable that names no option is a warning with the nearest name", async () => {
  const { problems, warnings } = await read([], {
    CULVERT_SAMPLE_DIAL_TIMEOT: "1s",
    CULVERT_SAMPLE_XYLOPHONE: "secret",
    "CULVERT_SAMPLE_A\u001b[2J": "x",
  });
  assert.deepEqual(problems, []);
  assert.deepEqual(warnings, [
    "CULVERT_SAMPLE_DIAL_TIMEOT is not known: did you mean CULVERT_SAMPLE_DIAL_TIMEOUT?",
    "CULVERT_SAMPLE_XYLOPHONE is not known: docs/options.md has all names",
    "CULVERT_SAMPLE_A [2J is not known: docs/options.md has all names",
  ]);
});

test("what names an option, is empty or belongs to another command is no warning", async () => {
  const env = {
    CULVERT_SAMPLE_COUNT: "4",
    CULVERT_SAMPLE_CONFIG: "",
    PROXY_SAMPLE_ID: "a",
    CULVERT_SAMPLE_EMPTY: "",
    CULVERT_OTHER_COUNT: "4",
    CULVERT_SAMPLER_COUNT: "4",
  };
  assert.deepEqual((await read([], env)).warnings, []);
});

for (const service of ["CULVERT_SAMPLE", "CULVERT_SAMPLE_AGENTS", "CULVERT_SAMPLE_AGENT"]) {
  test(`what Kubernetes sets for a Service is no warning and no value: ${service}`, async () => {
    const env = {
      [`${service}_SERVICE_HOST`]: "10.96.0.7",
      [`${service}_SERVICE_PORT`]: "8091",
      [`${service}_SERVICE_PORT_AGENTS_TLS`]: "8091",
      [`${service}_PORT`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP_PROTO`]: "tcp",
      [`${service}_PORT_8091_TCP_PORT`]: "8091",
      [`${service}_PORT_8091_TCP_ADDR`]: "10.96.0.7",
      [`${service}_PORT_53_UDP`]: "udp://10.96.0.7:53",
    };
    const { problems, warnings, sources } = await read([], env);
    assert.deepEqual([problems, warnings, [...sources.keys()]], [[], [], []]);
  });
}
