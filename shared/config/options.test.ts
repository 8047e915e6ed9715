import assert from "node:assert/strict";
import { test } from "node:test";
import { helpText, printConfig } from "./flags.ts";
import { defaultsOf } from "./options.ts";
import { readOptions } from "./read-options.ts";
import { configFile, dir, good, read, table } from "./testing/sample-table.ts";

test("without any source every value is its default", async () => {
  assert.deepEqual(await good([]), defaultsOf(table));
  assert.equal(defaultsOf(table).dialTimeoutMs, 5_000);
  assert.equal(defaultsOf(table).window, 65_536);
  assert.equal(defaultsOf(table).udsMode, 0o660);
});

test("flags are written with = or a space, with dashes or underscores, and the last of several wins", async () => {
  assert.equal((await good(["--uds-name", "/run/a_b"])).udsName, "/run/a_b");
  assert.equal((await good(["--uds_name=/run/a_b"])).udsName, "/run/a_b");
  assert.equal((await good(["--uds_name", "/a", "--uds-name=/b"])).udsName, "/b");
  assert.equal((await good(["--uds-name=-odd"])).udsName, "-odd");
  assert.equal((await good(["--uds-name=/a=b"])).udsName, "/a=b");
});

test("a boolean is a bare flag or has a value as Go writes it", async () => {
  assert.equal((await good(["--delete-file=false"])).deleteFile, false);
  assert.equal((await good(["--delete_file=0", "--uds-name=/a"])).deleteFile, false);
  assert.equal((await good(["--delete-file=F", "--delete-file"])).deleteFile, true);
  assert.match(
    (await read(["--delete-file=maybe"])).problems[0] ?? "",
    /--delete-file needs true or false, not "maybe"/,
  );
});

test("an alias of Konnectivity sets the same value", async () => {
  assert.equal((await good(["--backend-dial-timeout=1m30s"])).dialTimeoutMs, 90_000);
  assert.equal((await good(["--dial-timeout=1s", "--backend_dial_timeout=2s"])).dialTimeoutMs, 2_000);
});

test("lists are repeated or separated, each by its own separator", async () => {
  assert.deepEqual((await good(["--targets=a, b", "--targets", "c"])).targets, ["a", "b", "c"]);
  assert.deepEqual((await good(["--identities=CN=x,O=y; CN=z"])).identities, ["CN=x,O=y", "CN=z"]);
  assert.deepEqual((await good([], { CULVERT_SAMPLE_TARGETS: "a,b" })).targets, ["a", "b"]);
});

test("flag wins over environment, environment over file, file over default", async () => {
  const config = configFile("dial-timeout: 1s\nwindow: 32KiB\ncount: 2\n");
  const env = { CULVERT_SAMPLE_DIAL_TIMEOUT: "2s", CULVERT_SAMPLE_WINDOW: "48KiB", CULVERT_SAMPLE_CONFIG: config };
  const { values, sources, problems } = await read(["--dial-timeout=3s"], env);
  assert.deepEqual(problems, []);
  assert.deepEqual([values.dialTimeoutMs, values.window, values.count, values.level], [3_000, 49_152, 2, "info"]);
  assert.deepEqual(
    ["dialTimeoutMs", "window", "count", "level"].map((key) => sources.get(key)),
    ["flag", "environment", "file", undefined],
  );
});

test("an unknown flag names the nearest known one, and every fault is reported at once", async () => {
  const { problems } = await read([
    "--uds-nam",
    "/x",
    "--agent-port=70000",
    "--count=0",
    "oops",
    "--frobnicate=1",
    "-x",
    "-uds-name=/x",
    "--cert",
  ]);
  assert.deepEqual(problems, [
    "--cert needs a value.",
    'Unexpected argument "oops": options are written --name=value.',
    "There is no flag --uds-nam. Did you mean --uds-name?",
    "There is no flag --frobnicate. culvert sample --help lists them.",
    "There is no flag -x. culvert sample --help lists them.",
    "There is no flag -uds-name. Did you mean --uds-name?",
    '--agent-port takes at most 65535, not "70000".',
    '--count needs at least 1, not "0".',
  ]);
});

test("a misspelt flag is the only fault: what it was to give is not missed as well", async () => {
  const { problems } = await read(["--window=17KiB", "--uds-nam=/x"]);
  assert.deepEqual(problems, ["There is no flag --uds-nam. Did you mean --uds-name?"]);
});

test("a flag that takes no value says so when it is given one", async () => {
  const { problems, help, printConfig } = await read(["--help=1", "--print_config=yes", "--helq=1"]);
  assert.deepEqual(problems, [
    "--help takes no value.",
    "--print-config takes no value.",
    "There is no flag --helq. Did you mean --help?",
  ]);
  assert.deepEqual([help, printConfig], [undefined, false]);
});

test("a value that is left out does not swallow the next flag", async () => {
  const { problems, values } = await read(["--cert", "--agent-port", "1"]);
  assert.deepEqual(problems, ["--cert needs a value."]);
  assert.equal(values.agentPort, 1);
});

test("values out of their bounds or form are refused with the cure", async () => {
  const table: [string, RegExp][] = [
    ["--dial-timeout=10", /needs a duration with its unit/],
    ["--dial-timeout=2h", /takes at most 1h, not "2h"/],
    ["--dial-timeout=-5s", /must not be negative: a duration such as 8s, not "-5s"/],
    ["--window=-1KiB", /must not be negative: a size such as 64KiB, not "-1KiB"/],
    ["--host=https://h", /needs a host name or an IP address, without scheme and port, not "https:\/\/h"/],
    ["--host=h:80", /without scheme and port/],
    ["--host=[::1]:80", /without scheme and port/],
    ["--host=a b", /needs a host name/],
    ["--window=1KiB", /needs at least 16KiB, not "1KiB"/],
    ["--uds-mode=0999", /needs a mode in octal such as 0660/],
    ["--uds-mode=7777", /permission bits only/],
    ["--agent-port=", /needs a whole number, not ""/],
    ["--agent-port=-1", /needs at least 0/],
    ["--level=loud", /needs one of info, debug, not "loud"/],
    ["--sample-id=a b", /letters, digits and \. _ : -/],
    ["--uds-name=a\nb", /must not contain line breaks/],
    ["--tls-min-version=VersionTLS11", /not offered \(RFC 8996\)/],
    ["--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA265", /did you mean TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\?/],
    ["--cipher-suites=ALL:!aNULL", /names no cipher suite/],
  ];
  for (const [flag, pattern] of table) {
    const { problems } = await read([flag]);
    assert.equal(problems.length, 1, flag);
    assert.match(problems[0] ?? "", pattern);
    assert.ok(problems[0]?.startsWith(`${flag.replace(/=.*/s, "")} `), problems[0]);
  }
});

test("a negative value behind a space is reported as such, not as an unknown flag", async () => {
  assert.deepEqual((await read(["--dial-timeout", "-5s", "--count", "-1", "--delete-file", "-.5"])).problems, [
    '--dial-timeout must not be negative: a duration such as 8s, not "-5s".',
    '--count needs at least 1, not "-1".',
    '--delete-file needs true or false, not "-.5".',
  ]);
});

test("a host is a name or an address, with or without brackets, or nothing", async () => {
  const table = [
    ["::1", "::1"],
    ["[fd00::1]", "fd00::1"],
    ["fe80::1%eth0", "fe80::1%eth0"],
    ["10.0.0.1", "10.0.0.1"],
    ["culvert.example.com", "culvert.example.com"],
    ["", ""],
  ] as const;
  for (const [text, host] of table) assert.equal((await good([`--host=${text}`])).host, host);
});

test("Go's names of TLS versions and suites become OpenSSL's, and TLS 1.3 stays available", async () => {
  const go = await good(["--tls-min-version=VersionTLS13", "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]);
  assert.equal(go.tlsMinVersion, "TLSv1.3");
  assert.match(go.cipherSuites, /^TLS_AES_128_GCM_SHA256:.*:ECDHE-RSA-AES128-GCM-SHA256$/);
  assert.equal((await good(["--cipher-suites=ECDHE-RSA-AES128-GCM-SHA256"])).cipherSuites, go.cipherSuites);
  assert.equal((await good(["--cipher-suites=TLS_AES_256_GCM_SHA384"])).cipherSuites, "TLS_AES_256_GCM_SHA384");
  assert.equal((await good(["--tls-min-version="])).tlsMinVersion, "TLSv1.2");
});

test("flags without a meaning here give one warning line, and none of them is silent", async () => {
  const { warnings, problems } = await read(["-v=4", "--logtostderr", "--xfr_channel_size=10", "--uds-name=/a"]);
  assert.deepEqual(problems, []);
  assert.deepEqual(warnings, ["Accepted without effect: --v, --logtostderr (klog); --xfr-channel-size (no channels)."]);
  assert.deepEqual((await read(["-v", "4", "--logtostderr=true"])).problems, []);
  assert.deepEqual((await read(["--v=4"])).warnings.length, 1);
});

test("a flag whose function is missing is refused, except for values that ask for nothing", async () => {
  assert.deepEqual((await read(["--mode=grpc"])).problems, ["--mode: only HTTP CONNECT is spoken."]);
  assert.deepEqual((await read(["--mode=http-connect"])).problems, []);
  assert.deepEqual((await read(["--config", configFile("mode: grpc\n")])).problems.length, 1);
});

test("what crosses options is checked with the values of all sources", async () => {
  assert.deepEqual((await read(["--window=17KiB"])).problems, ["A window of 17KiB brings bad luck."]);
});

test("variables that Kubernetes injects for a Service of our name, and unknown ones, never break a start", async () => {
  const env = {
    CULVERT_SAMPLE_SERVICE_HOST: "10.96.0.5",
    CULVERT_SAMPLE_SERVICE_PORT: "8090",
    CULVERT_SAMPLE_PORT: "tcp://10.96.0.5:8090",
    CULVERT_SAMPLE_PORT_8090_TCP_ADDR: "10.96.0.5",
    // A Service called "culvert-sample-agent" collides with --agent-port.
    CULVERT_SAMPLE_AGENT_PORT: "tcp://10.96.0.7:8091",
    CULVERT_SAMPLE_NO_SUCH: "x",
    CULVERT_SAMPLE_LEVEL: "",
    PROXY_SAMPLE_ID: "from-konnectivity",
  };
  const values = await good([], env);
  assert.equal(values.agentPort, 8_091);
  assert.equal(values.level, "info");
  assert.equal(values.sampleId, "from-konnectivity");
  assert.equal((await good([], { ...env, CULVERT_SAMPLE_SAMPLE_ID: "ours" })).sampleId, "ours");
  assert.equal((await good([], { CULVERT_SAMPLE_AGENT_PORT: "9000" })).agentPort, 9_000);
  assert.match(
    (await read([], { CULVERT_SAMPLE_AGENT_PORT: "x" })).problems[0] ?? "",
    /^CULVERT_SAMPLE_AGENT_PORT needs/,
  );
});

test("a file option must name a file that can be read", async () => {
  assert.deepEqual((await read(["--cert=/no/such.pem"])).problems, ["--cert: /no/such.pem does not exist."]);
  assert.match((await read([`--cert=${dir}`])).problems[0] ?? "", /is a directory, not a file/);
  assert.deepEqual((await read(["--cert="])).problems, []);
});

test("the printed configuration reads back to the same values, and hides passwords", async () => {
  const argv = [
    '--uds-name=/run/it\'s # "odd": x',
    "--uds-mode=0600",
    "--dial-timeout=1.5s",
    "--targets=a,b: c",
    "--identities=CN=x,O=y;CN=z",
    "--delete-file=false",
    "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
  ];
  const { values, sources } = await read(argv, { CULVERT_SAMPLE_COUNT: "4" });
  const printed = printConfig(table, values, sources);
  assert.deepEqual(await good(["--config", configFile(printed)]), values);
  assert.match(printed, /^dial-timeout: 1s500ms # flag$/m);
  assert.match(printed, /^count: 4 # environment$/m);
  assert.match(printed, /^window: 64KiB # default$/m);
  const secret = await read(["--url=wss://admin:hunter@2@host:443/path"]);
  assert.match(printConfig(table, secret.values, secret.sources), /^url: "wss:\/\/\*\*\*@host:443\/path" # flag$/m);
  const slash = await read(["--url=http://user:pa/ss@proxy:3128"]);
  assert.match(printConfig(table, slash.values, slash.sources), /^url: "http:\/\/\*\*\*@proxy:3128" # flag$/m);
  const query = await read(["--url=https://wpad/proxy.pac?token=secret&site=1"]);
  assert.match(printConfig(table, query.values, query.sources), /^url: "https:\/\/wpad\/proxy.pac\?\*\*\*" # flag$/m);
});

test("help shows our names with defaults under their headings, and asks for nothing else", async () => {
  const { help, problems } = await read(["--help", "--config=/no/such/file"]);
  assert.equal(help, "first day");
  assert.deepEqual(problems, []);
  const text = helpText(table);
  assert.match(
    text,
    /Listen:[\s\S]*--uds-name <text>[\s\S]*Rest:[\s\S]*--dial-timeout <duration> +A time\. \(default: 5s\)/,
  );
  assert.match(text, /For example:\n {2}culvert sample --uds-name \/run\/x\.sock\n/);
  assert.match(text, /CULVERT_SAMPLE_UDS_NAME/);
  assert.doesNotMatch(text, /backend-dial-timeout|xfr-channel/);
});

test("help shows the options of a first day, and with all every one", async () => {
  const short = { ...table, firstDay: ["udsName"] };
  const [first, all] = [helpText(short, "first day"), helpText(short, "all")];
  const shown = (text: string) => [...text.matchAll(/^ {2}(?:-h, )?--([\w-]+)/gm)].map(([, name]) => name);
  assert.deepEqual(shown(first), ["uds-name", "config", "print-config", "help"]);
  assert.match(first, /culvert sample --help all shows all 16\./);
  assert.deepEqual(shown(all), shown(helpText(table)));
  const read = (...argv: string[]) => readOptions(short, { argv, env: {} });
  assert.equal((await read("--help", "all")).help, "all");
  assert.equal((await read("-h")).help, "first day");
  assert.deepEqual((await read("--help=some")).problems, ["--help takes no value but all."]);
});
