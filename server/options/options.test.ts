import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { printConfig } from "../../shared/config/flags.ts";
import { readOptions } from "../../shared/config/read-options.ts";
import { serverOptions } from "./options.ts";
import { wideNetworks } from "./resolve-options.ts";

const dir = mkdtempSync(join(tmpdir(), "culvert-server-options-"));
after(() => rmSync(dir, { recursive: true, force: true }));
const pem = join(dir, "some.pem");
writeFileSync(pem, "");

const read = (argv: string[], env: NodeJS.ProcessEnv = {}) => readOptions(serverOptions, { argv, env });
const agents = [`--cluster-cert=${pem}`, `--cluster-key=${pem}`, `--cluster-ca-cert=${pem}`];
const callers = [`--server-cert=${pem}`, `--server-key=${pem}`, `--server-ca-cert=${pem}`];
const uds = "--uds-name=/run/c.sock";

test("a unix socket and the agents' certificates are enough", async () => {
  const { problems, warnings, values } = await read([uds, ...agents]);
  assert.deepEqual([problems, warnings], [[], []]);
  assert.deepEqual(
    [values.serverPort, values.agentPort, values.healthPort, values.adminPort, values.adminBindAddress],
    [0, 8091, 8092, 8095, "127.0.0.1"],
  );
  assert.match(values.serverId, /-[0-9a-f]{8}$/);
});

test("what --print-config prints can be given as --config, and warns of nothing that was not warned of before", async () => {
  for (const argv of [
    [uds, ...agents],
    [...callers, ...agents],
    ["--clusters=/c", ...callers, ...agents],
  ]) {
    const { values, sources, warnings } = await read(argv);
    const file = join(dir, "printed.yaml");
    writeFileSync(file, printConfig(serverOptions, values, sources));
    const again = await read([`--config=${file}`]);
    assert.deepEqual([again.problems, again.warnings, again.values], [[], warnings, values]);
  }
});

test("with a directory an id of this server is refused that leaves no room in the ids of CONNECTs", async () => {
  const refusals = async (...more: string[]) =>
    (await read([uds, ...agents, ...more])).problems.filter((problem) => problem.includes("--server-id"));
  const directory = "--directory=nats://nats-1:4222";
  assert.deepEqual(await refusals(`--server-id=${"s".repeat(101)}`), []);
  assert.deepEqual(await refusals(`--server-id=${"s".repeat(100)}`, directory), []);
  assert.match(String(await refusals(`--server-id=${"s".repeat(101)}`, directory)), /at most 100 characters/);
});

test("the callers' TCP port is open when --server-port or --server-cert is given, and off with 0", async () => {
  assert.equal((await read([...callers, ...agents])).values.serverPort, 8090);
  assert.equal((await read(["--server-port=9000", ...callers, ...agents])).values.serverPort, 9000);
  const off = await read(["--server-port=0", ...callers, uds, ...agents]);
  assert.equal(off.values.serverPort, 0);
  assert.match(off.warnings.join(), /--server-cert has no effect/);
  const bare = await read(["--server-port=8090", ...agents]);
  assert.match(bare.problems.join("\n"), /--server-port is TLS: give --server-cert and --server-key/);
  assert.match(bare.problems.join("\n"), /give --server-ca-cert/);
});

test("everything that is missing is reported in one go, by the names of flags", async () => {
  const { problems } = await read([]);
  assert.equal(problems.length, 3);
  assert.match(problems.join("\n"), /--uds-name[\s\S]*--cluster-cert and --cluster-key[\s\S]*--cluster-ca-cert/);
});

test("a certificate without its key, and the reverse, is refused", async () => {
  const { problems } = await read([uds, `--server-cert=${pem}`, `--server-ca-cert=${pem}`, `--cluster-key=${pem}`]);
  assert.match(problems.join("\n"), /--server-cert needs its private key: give --server-key too/);
  assert.match(problems.join("\n"), /--cluster-key needs its certificate: give --cluster-cert too/);
});

test("the manifest of an mTLS Konnectivity server starts with one warning line", async () => {
  const { problems, warnings, values } = await read([
    "--logtostderr=true",
    "-v=4",
    "--uds_name=/etc/kubernetes/konnectivity-server/konnectivity-server.socket",
    "--delete-existing-uds-file",
    ...agents,
    "--mode=http-connect",
    "--server-port=0",
    "--agent-port=8132",
    "--admin-port=8133",
    "--health-port=8134",
    "--admin-bind-address=",
    "--keepalive-time=30s",
    "--frontend-keepalive-time=1h",
    "--server-count=1",
    "--proxy-strategies=default",
    "--agent-namespace=",
    "--agent-service-account=",
    "--kubeconfig=",
    "--authentication-audience=",
    "--xfr-channel-size=100",
    "--tls-min-version=VersionTLS12",
    "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "--graceful-shutdown-timeout=15s",
    "--backend-dial-timeout=3s",
    "--enable-lease-controller=false",
    "--enable-lease-controller",
  ]);
  assert.deepEqual(problems, []);
  assert.deepEqual(warnings, [
    "Accepted without effect: --logtostderr, --v (klog's: use --log-level and --log-format); " +
      "--mode (callers may speak gRPC and HTTP CONNECT, whatever it says); " +
      "--xfr-channel-size (streams have windows: --max-window).",
  ]);
  assert.deepEqual(
    [values.drainTimeoutMs, values.dialTimeoutMs, values.keepaliveMs, values.adminBindAddress],
    [15_000, 3_000, 30_000, "127.0.0.1"],
  );
});

test("what is not built yet is refused with a sentence, never accepted without effect", async () => {
  const refused: [string, RegExp][] = [
    ["--mode=quic", /has no mode "quic"; known are grpc and http-connect/],
    ["--proxy-strategies=random", /has no strategy "random"; known are destHost, cidr, defaultRoute, default/],
    ["--server-count=some", /--server-count .*number/],
  ];
  for (const [flag, sentence] of refused) {
    const { problems } = await read([uds, ...agents, flag]);
    assert.equal(problems.length, 1, flag);
    assert.match(problems[0] ?? "", sentence);
  }
});

test("flags of Konnectivity that ask for what culvert does are accepted in silence", async () => {
  for (const flag of [
    "--server-count=1",
    "--server-count=3",
    "--proxy-strategies=default",
    "--proxy-strategies=",
    "--enable-lease-controller=false",
    "--enable-lease-controller",
  ]) {
    const { problems, warnings } = await read([uds, ...agents, flag]);
    assert.deepEqual([problems, warnings], [[], []], flag);
  }
});

test("strategies have an order, none is the default, and what has no effect is warned of: strictness alone, and what is behind default", async () => {
  for (const [flags, strategies, warned] of [
    [[], ["default"], false],
    [["--proxy-strategies="], ["default"], false],
    [["--proxy-strategies=destHost, cidr,defaultRoute"], ["destHost", "cidr", "defaultRoute"], false],
    [["--proxy-strategies=cidr,default", "--strict-identifiers"], ["cidr", "default"], false],
    [["--strict-identifiers"], ["default"], true],
    [["--proxy-strategies=destHost,default"], ["destHost", "default"], false],
    [["--proxy-strategies=default,destHost"], ["default", "destHost"], true],
  ] as const) {
    const { values, problems, warnings } = await read([uds, ...agents, ...flags]);
    assert.deepEqual([values.proxyStrategies, problems, warnings.length > 0], [strategies, [], warned], String(flags));
  }
});

test("values that contradict each other are refused or warned of", async () => {
  const cases: [string[], RegExp][] = [
    [
      ["--agent-namespace=kube-system"],
      /--authentication-audience, --agent-namespace and --agent-service-account together/,
    ],
    [["--kubeconfig=/x"], /--kubeconfig is for tokens of agents and for leases: give --authentication-audience/],
    [
      ["--server-count-service=culvert"],
      /needs the namespace and name of a Service, such as culvert\/culvert-server-agents/,
    ],
    [["--server-count-service=a/b", "--enable-lease-controller"], /both count the servers: leave one of them out/],
    [["--lease-namespace=A/b"], /--lease-namespace is no name of a namespace/],
    [["--lease-label=k8s-app"], /--lease-label .*needs labels such as k8s-app=culvert-server, not "k8s-app"/],
    [["--clusters=/x", "--agent-identities=CN=x"], /say it in the cluster's document \(agents\.identities\)/],
    [["--clusters=/x", "--allowed-destination=kas:6443"], /say it in the cluster's document \(allowedDestinations\)/],
    [[uds, ...agents, "--allowed-destination=10.0.0.0/8:443"], /--allowed-destination/],
    [
      ["--http-port=8101"],
      /in clear, and its clients prove themselves by a token: give --clusters, with callers.token/,
    ],
    [["--http-port=8101", "--http-bind-address="], /beyond loopback is TLS: give --server-cert/],
    [["--agent-proxy-protocol=required"], /give --proxy-protocol-trusted-cidrs/],
    [["--agent-insecure-proxy-protocol=optional"], /give --proxy-protocol-trusted-cidrs/],
    [["--agent-insecure-trusted-cidrs=10.0.0.0/33"], /a prefix length here is at most 32/],
    [["--initial-window=1MiB", "--max-window=64KiB"], /--max-window must not be smaller/],
    [["--health-port=9000", "--agent-port=9000"], /--agent-port and --health-port are both 9000/],
    [["--agent-path=culvert"], /--agent-path must be a plain path/],
    [["--caller-identities=kube-apiserver"], /--caller-identities .*"kube-apiserver" has no "=".*CN=kube-apiserver/],
    [["--agent-identities=CN=a\\b"], /--agent-identities .*a backslash stands only before/],
    [[`--uds-name=/${"x".repeat(107)}`], /longer than the 107 bytes/],
  ];
  for (const [flags, pattern] of cases) assert.match((await read([uds, ...agents, ...flags])).problems.join(), pattern);
  assert.match((await read([uds, ...agents, "--keepalive-time=1h"])).warnings.join(), /only after 150 minutes/);
  assert.match((await read([uds, ...agents, "--dial-timeout=20s"])).warnings.join(), /longer than --connect-timeout/);
  assert.match((await read([uds, "--agent-port=0"])).warnings.join(), /no agent can connect/);
  assert.match(
    (await read([uds, ...agents, "--lease-label=a=b"])).warnings.join(),
    /without --enable-lease-controller/,
  );
  const unused = await read([uds, ...agents, "--agent-insecure-trusted-cidrs=10.0.0.0/8"]);
  assert.match(unused.warnings.join(), /--agent-insecure-trusted-cidrs has no effect/);
});

test("the port in clear is off, and open beyond this host to known balancers only", async () => {
  assert.equal((await read([uds, ...agents])).values.agentInsecurePort, 0);
  const on = [uds, ...agents, "--agent-insecure-port=8098", "--inner-tls=auto"];
  for (const fine of [
    [],
    ["--agent-insecure-bind-address=::1"],
    ["--agent-insecure-bind-address=0.0.0.0", "--agent-insecure-trusted-cidrs=10.0.0.0/8"],
  ]) {
    const { problems, warnings } = await read([...on, ...fine]);
    assert.deepEqual([problems, warnings], [[], []], fine.join());
  }
  for (const address of ["", "0.0.0.0", "::", "10.0.0.1", "balancer.example"]) {
    const { problems } = await read([...on, `--agent-insecure-bind-address=${address}`]);
    assert.match(problems.join(), /open beyond this host only to known balancers: give --agent-insecure-trusted-cidrs/);
  }
});

test("a port in clear that much of the Internet may come to is warned of, once, where it can be reached", async () => {
  const warningsOf = async (...flags: string[]) =>
    (await read([uds, ...agents, "--agent-insecure-port=8098", "--inner-tls=auto", ...flags])).warnings;
  const reachable = "--agent-insecure-bind-address=";
  const [warning, ...others] = await warningsOf(reachable, "--agent-insecure-trusted-cidrs=0.0.0.0/0,10.0.0.0/8,::/0");
  assert.match(warning ?? "", /^--agent-insecure-trusted-cidrs has 0\.0\.0\.0\/0 and ::\/0, .*in clear/);
  assert.deepEqual(others, []);
  assert.deepEqual(await warningsOf(reachable, "--agent-insecure-trusted-cidrs=10.0.0.0/8,fd00::/8"), []);
  assert.deepEqual(await warningsOf("--agent-insecure-trusted-cidrs=0.0.0.0/0"), [], "on loopback nobody comes");
});

test("two ports of the server that are one are refused with the names of both, also where one is on all interfaces", async () => {
  const on = [uds, ...agents, ...callers, "--inner-tls=auto", "--agent-insecure-trusted-cidrs=10.0.0.0/8"];
  const free = ["--server-port=1", "--agent-port=2", "--agent-insecure-port=3", "--health-port=4", "--admin-port=5"];
  const problemsOf = async (...flags: string[]) => (await read([...on, ...flags])).problems;
  const names = free.map((flag) => flag.slice(0, flag.indexOf("=")));
  assert.deepEqual(await problemsOf(...free), []);
  for (const [index, other] of names.entries()) {
    for (const one of names.slice(0, index)) {
      const same = [...free.filter((flag) => ![one, other].includes(flag.slice(0, flag.indexOf("="))))];
      const everywhere = names.map((name) => `${name.replace(/-port$/, "-bind-address")}=0.0.0.0`);
      const said = [`${one} and ${other} are both 9000.`];
      assert.deepEqual(await problemsOf(...same, `${one}=9000`, `${other}=9000`, ...everywhere), said);
      assert.deepEqual(await problemsOf(...same, `${one}=0`, `${other}=0`, ...everywhere), []);
    }
  }
  // By default the admin port and the insecure one are on loopback, and all others everywhere.
  assert.deepEqual(await problemsOf("--agent-insecure-port=8091"), [
    "--agent-port and --agent-insecure-port are both 8091.",
  ]);
  const apart = ["--agent-bind-address=127.0.0.1", "--admin-bind-address=127.0.0.2", "--admin-port=8091"];
  assert.deepEqual(await problemsOf(...apart), []);
});

test("an audit trail that cannot be one is refused", async () => {
  const problemsOf = async (...argv: string[]) => (await read([uds, ...agents, ...argv])).problems;
  assert.match((await problemsOf("--audit-log=unix:")).join(), /--audit-log unix: needs the path of a socket/);
  assert.match((await problemsOf("--audit-required")).join(), /--audit-required needs an --audit-log/);
  assert.deepEqual(await problemsOf("--audit-log=unix:/run/audit.sock", "--audit-required"), []);
});

test("the port in clear needs something by which agents can prove themselves on it", async () => {
  const on = [uds, "--agent-insecure-port=8098"];
  const audience = ["--authentication-audience=a", "--agent-namespace=n", "--agent-service-account=s"];
  const problemsOf = async (...flags: string[]) => (await read([...on, ...flags])).problems.join();
  assert.match(await problemsOf(...agents), /Nobody could prove himself on --agent-insecure-port/);
  assert.equal(await problemsOf(...agents, "--inner-tls=auto"), "");
  assert.equal(await problemsOf(...agents, ...audience), "");
  // Tokens alone, and no port with TLS: nobody is shown a certificate.
  assert.equal(await problemsOf("--agent-port=0", ...audience), "");
  assert.match(await problemsOf("--agent-port=0", ...audience, "--inner-tls=auto"), /give --cluster-cert/);
  assert.match(await problemsOf("--agent-port=0"), /give --cluster-ca-cert/);
});

test("identities keep their commas, and a dial timeout of 0 is the whole connect timeout", async () => {
  const { values, problems } = await read([
    uds,
    ...agents,
    "--caller-identities=CN=kube-apiserver,O=system:masters;DNS=*.example.com;CN=Acme\\, Inc",
    "--backend-dial-timeout=0",
  ]);
  assert.deepEqual(problems, []);
  assert.deepEqual(values.callerIdentities, [
    "CN=kube-apiserver,O=system:masters",
    "DNS=*.example.com",
    "CN=Acme\\, Inc",
  ]);
  assert.equal(values.dialTimeoutMs, values.connectTimeoutMs);
});

test("a network is wide when nobody's own is as wide", () => {
  const wide = ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/7", "2000::/3", "::ffff:0.0.0.0/96"];
  const own = ["10.0.0.0/8", "fc00::/7", "192.168.0.0/16", "203.0.113.7", "2001:db8::1", "::ffff:10.0.0.0/104"];
  assert.deepEqual(wideNetworks([...own, ...wide]), wide);
});

test("a directory needs what other servers know this one by, and without one the port for them is off", async () => {
  const peers = [
    ...["--directory=nats://nats-1:4222,tls://nats-2", "--peer-address=10.0.0.1", "--peer-identities=O=servers"],
    ...[`--peer-cert=${pem}`, `--peer-key=${pem}`, `--peer-ca-cert=${pem}`],
  ];
  const { problems, values } = await read([uds, ...agents, ...peers]);
  assert.deepEqual([problems, values.peerPort], [[], 8096]);
  const ofPod = await read([uds, ...agents, ...peers, "--peer-address=fd00::1"]);
  assert.deepEqual(ofPod.problems, [], "Kubernetes writes the address of a pod without brackets");
  const bare = (await read([uds, ...agents, "--directory=nats://nats-1:4222"])).problems.join("\n");
  for (const option of ["--peer-address", "--peer-cert", "--peer-identities"]) assert.ok(bare.includes(option), option);
  const off = await read([uds, ...agents, "--peer-address=10.0.0.1"]);
  assert.equal(off.values.peerPort, 0);
  assert.match(off.warnings.join(), /no effect without --directory/);
  for (const flag of ["--peer-port=9000", "--peer-bind-address=127.0.0.1"]) {
    assert.match((await read([uds, ...agents, flag])).warnings.join(), /no effect without --directory/, flag);
  }
  const rows: [string, RegExp][] = [
    ["--directory=http://nats-1", /needs URLs such as nats:/],
    ["--directory=nats://user:secret@nats-1", /must not hold a password/],
    ["--peer-address=fd00::1]:8096", /--peer-address must be HOST or HOST:PORT/],
    ["--peer-address=10.0.0.1:99999", /--peer-address 10\.0\.0\.1:99999 can be dialled by nobody: .*port/],
    ["--peer-address=10.0.0.1:0", /can be dialled by nobody: .*port/],
    ...["0.0.0.0", "0.0.0.0:8096", "::", "[::]:8096", "0:0:0:0:0:0:0:0"].map((address): [string, RegExp] => {
      return [`--peer-address=${address}`, /stands for all addresses of a host/];
    }),
    ["--peer-port=0", /--directory needs --peer-port/],
    ["--peer-identities=nobody", /identity pattern/],
    ["--peer-port=8091", /--agent-port/],
    [`--directory-cert=${pem}`, /--directory-key/],
  ];
  for (const [argument, problem] of rows) {
    assert.match((await read([uds, ...agents, ...peers, argument])).problems.join("\n"), problem, argument);
  }
});
