import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { createSite, type Site } from "../harness/binaries.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { ON_CI } from "../harness/counts.ts";
import { agentFiles, flags, serverFiles } from "../harness/pki-files.ts";
import { type ManagedProcess, ON_BUN, startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor, within } from "../harness/wait.ts";

// ── a start that must fail ───────────────────────────────────────────────────────────────────────────────────────

interface Mistake {
  readonly argv: (site: Site) => readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly says: readonly RegExp[];
}

/** One of each kind: what else may be wrong with options and files is in shared/config and shared/tls. */
const MISTAKES: Readonly<Record<string, Mistake>> = {
  "an unknown flag names the nearest": {
    argv: (site) => ["server", ...good(site), "--agent-prot=1"],
    says: [/^culvert server: .*--agent-prot.*--agent-port/, /^See: culvert server --help$/],
  },
  "every fault is told at once": {
    argv: () => ["server", "--connect-timeout=soon", "--max-window=1KB", "--agent-port=70000"],
    says: [
      /^culvert server: --connect-timeout .*soon/,
      /^culvert server: --max-window /,
      /^culvert server: --agent-port .*70000/,
      /^culvert server: Nobody could call: give --uds-name/,
      /^culvert server: Agents connect over TLS: give --cluster-cert and --cluster-key\.$/,
    ],
  },
  "a certificate that is none": {
    argv: (site) => ["server", ...good(site), `--cluster-cert=${file(site, "no certificate\n")}`],
    says: [/^culvert server: --cluster-cert: .*holds no PEM certificate/],
  },
  "an agent that knows no server": {
    argv: (site) => ["agent", ...flags(agentFiles(site.dir.path))],
    says: [/^culvert agent: Which server\? Give --server wss:\/\/host/],
  },
  "an agent's key that belongs to another certificate": {
    argv: (site) => ["agent", ...goodAgent(site), `--agent-key=${site.dir.file("cluster.key")}`],
    says: [/^culvert agent: --agent-key: the private key .*cluster\.key does not belong to .*agent\.crt\.$/],
  },
  "a bad value in the environment names the variable": {
    argv: (site) => ["server", ...good(site)],
    env: { CULVERT_SERVER_CONNECT_TIMEOUT: "8" },
    says: [/^culvert server: CULVERT_SERVER_CONNECT_TIMEOUT .*8/],
  },
  "an unknown command": { argv: () => ["serve"], says: [/unknown command.*serve/] },
};

/** A failure is sentences on stderr where the log is for people, and JSON where that is JSON. */
const FOR_PEOPLE = { CULVERT_SERVER_LOG_FORMAT: "pretty", CULVERT_AGENT_LOG_FORMAT: "pretty" };

const PORTS = ["agentPort", "serverPort", "healthPort", "adminPort"] as const;

describe("a start that must fail", { concurrency: 2 }, () => {
  for (const [what, { argv, env, says }] of Object.entries(MISTAKES)) {
    test(`exit 2 and sentences: ${what}`, async () => {
      using site = await createSite();
      await using process = startCulvert(argv(site), { env: { ...FOR_PEOPLE, ...env } });
      assert.equal(await within(process.exited, 5_000, "the process to give up"), "exit code 2");
      for (const sentence of says) await assertSaid(process, sentence);
      assert.doesNotMatch(process.log.join("\n"), /^\s+at /m, "no stack for the operator");
    });
  }

  for (const option of ON_CI ? PORTS : PORTS.slice(0, 1)) {
    test(`a port in use is named with its flag: ${option}`, async () => {
      using site = await createSite();
      await using taken = await TARGETS.echo();
      const more = option === "serverPort" ? serverFiles(site.dir.path) : {};
      await using process = startCulvert(["server", ...good(site), ...flags({ ...more, [option]: taken.port })], {
        env: FOR_PEOPLE,
      });
      assert.equal(await within(process.exited, 5_000, "the process to give up"), "exit code 2");
      const flag = option.replace("Port", "-port");
      await assertSaid(process, new RegExp(`^culvert server: .*${taken.port}.*in use.*--${flag}`));
    });
  }

  test("a port of an agent that is in use is named with its flag before any server has seen the agent", async () => {
    using site = await createSite();
    await using taken = await TARGETS.echo();
    await using server = await TARGETS.echo();
    const argv = [...goodAgent(site), `--proxy-server-port=${server.port}`, `--health-server-port=${taken.port}`];
    await using process = startCulvert(["agent", ...argv], { env: FOR_PEOPLE });
    assert.equal(await within(process.exited, 5_000, "the process to give up"), "exit code 2");
    await assertSaid(process, new RegExp(`^culvert agent: .*${taken.port}.*in use.*--health-server-port`));
    assert.equal(server.accepted, 0);
  });
});

describe("a start that must not fail", { concurrency: 2 }, () => {
  test("variables that Kubernetes injects for Services called like us do not break a start", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    const injected = (service: string) => ({
      [`${service}_SERVICE_HOST`]: "10.96.0.7",
      [`${service}_SERVICE_PORT`]: "8091",
      [`${service}_PORT`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP`]: "tcp://10.96.0.7:8091",
      [`${service}_PORT_8091_TCP_PROTO`]: "tcp",
    });
    const env = {
      ...injected("CULVERT_SERVER"),
      ...injected("CULVERT_AGENT"),
      ...injected("CULVERT_SERVER_AGENT"), // CULVERT_SERVER_AGENT_PORT is also the name of an option
      ...injected("CULVERT_SERVER_AGENTS"),
      ...injected("CULVERT_SERVER_HEALTH"),
      ...injected("CULVERT_AGENT_HEALTH_SERVER"),
    };
    await using server = await site.startServer({}, { env });
    await using agent = await site.startAgent({}, { env });
    await using _connection = await established(connectThrough(site.listener("uds"), echo.address));
    assert.deepEqual([warnings(server), warnings(agent)], [[], []]);
  });

  test("a scrape has the heap's spaces where asking for them is cheap, which it is not on Bun", async () => {
    using site = await createSite();
    await using _server = await site.startServer();
    const metrics = await (await fetch(`http://127.0.0.1:${site.healthPort}/metrics`)).text();
    assert.match(metrics, /^nodejs_heap_size_used_bytes \d/m);
    assert.equal(/^nodejs_heap_space_/m.test(metrics), !ON_BUN);
  });

  test("a variable that is not known is one warning with the nearest name", async () => {
    using site = await createSite();
    await using server = await site.startServer({}, { env: { CULVERT_SERVER_CONNECT_TIMEOT: "8s" } });
    assert.deepEqual(warnings(server), [
      "CULVERT_SERVER_CONNECT_TIMEOT is not known: did you mean CULVERT_SERVER_CONNECT_TIMEOUT?",
    ]);
  });

  test("Konnectivity's flags, as an installer writes them, start both processes with one warning each", async () => {
    await using echo = await TARGETS.echo();
    using site = await createSite();
    const [healthPort, adminPort, agentHealth, agentAdmin] = await Promise.all([
      freePort(),
      freePort(),
      freePort(),
      freePort(),
    ]);
    const at = (name: string) => site.dir.file(name);
    await using server = startCulvert([
      ...["server", "--logtostderr=true", "--log-file-max-size=0", "--v=2"],
      ...["--uds-name", site.uds, "--delete-existing-uds-file"],
      ...["--cluster-cert", at("cluster.crt"), "--cluster-key", at("cluster.key")],
      ...["--cluster-ca-cert", at("cluster-ca.crt")],
      ...["--server-cert", at("server.crt"), "--server-key", at("server.key"), "--server-ca-cert", at("server-ca.crt")],
      ...[
        "--mode=http-connect",
        "--proxy-strategies=destHost,defaultRoute",
        "--server-count=1",
        "--server-id=control-plane-0",
      ],
      ...[
        "--server-port",
        `${site.callerPort}`,
        "--agent-port",
        `${site.agentPort}`,
        "--server-bind-address=127.0.0.1",
      ],
      ...[`--health-port=${healthPort}`, `--admin-port=${adminPort}`, "--admin-bind-address=127.0.0.1"],
      ...[
        "--keepalive-time=30s",
        "--frontend-keepalive-time=30s",
        "--enable-profiling",
        "--enable-contention-profiling",
      ],
      ...["--xfr-channel-size=10", "--warn-on-channel-limit", "--kubeconfig-qps=75", "--kubeconfig-burst=150"],
      ...["--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"],
      ...["--tls-min-version=VersionTLS12", "--agent-namespace=", "--agent-service-account=", "--kubeconfig="],
    ]);
    await server.waitForHealth(`http://127.0.0.1:${healthPort}/readyz`);
    await using agent = startCulvert(
      [
        ...["agent", "--logtostderr=true", "--v", "3", `--ca-cert=${at("cluster-ca.crt")}`],
        ...[`--agent-cert=${at("agent.crt")}`, `--agent-key=${at("agent.key")}`, "--agent-id=node-1"],
        ...["--proxy-server-host=127.0.0.1", `--proxy-server-port=${site.agentPort}`, "--sync-forever"],
        "--agent-identifiers=default-route=true",
        ...[
          `--health-server-port=${agentHealth}`,
          `--admin-server-port=${agentAdmin}`,
          "--admin_bind_address=127.0.0.1",
        ],
        ...["--keepalive-time=30s", "--probe-interval=5s", "--sync-interval=5s", "--sync-interval-cap=30s"],
      ],
      // The target of this test is on loopback.
      { env: { CULVERT_AGENT_ALLOW_LOOPBACK: "true" } },
    );
    await agent.waitForHealth(`http://127.0.0.1:${agentHealth}/readyz`);
    for (const via of ["uds", "tls"] as const) {
      await using _connection = await established(connectThrough(site.listener(via), echo.address));
    }
    assert.deepEqual(warnings(server), [
      "Accepted without effect: --logtostderr, --log-file-max-size, --v (klog's: use --log-level and --log-format); " +
        "--mode (callers may speak gRPC and HTTP CONNECT, whatever it says); " +
        "--enable-profiling, --enable-contention-profiling (Go's profiler); " +
        "--xfr-channel-size, --warn-on-channel-limit (streams have windows: --max-window); " +
        "--kubeconfig-qps, --kubeconfig-burst (answers about tokens are kept for a minute).",
    ]);
    assert.deepEqual(warnings(agent), [
      "Accepted without effect: --logtostderr, --v (klog's: use --log-level and --log-format); " +
        "--sync-forever (an agent never stops looking for servers); --probe-interval (a lost tunnel is noticed by --keepalive).",
    ]);
  });

  test("flag beats environment beats file; --print-config shows what holds, where from, and no key", async () => {
    using site = await createSite();
    const config = file(site, "connectTimeout: 3s\ndialTimeout: 2s\nagentWait: 700ms\n");
    const env = { CULVERT_SERVER_DIAL_TIMEOUT: "1500ms", CULVERT_SERVER_AGENT_WAIT: "600ms" };
    await using process = startCulvert(
      ["server", ...good(site), `--config=${config}`, "--agent-wait=500ms", "--print-config"],
      { env },
    );
    assert.equal(await within(process.exited, 5_000, "the answer"), "exit code 0");
    for (const line of [
      /^connect-timeout: 3s # file$/,
      /^dial-timeout: 1s500ms # environment$/,
      /^agent-wait: 500ms # flag$/,
    ]) {
      await assertSaid(process, line);
    }
    assert.doesNotMatch(process.log.join("\n"), /PRIVATE KEY/);
  });

  test("--help and --version answer on stdout with 0", async () => {
    for (const [argv, says] of [
      [["server", "--help"], /--connect-timeout/],
      [["agent", "--help"], /--allow-target/],
      [["--help"], /Usage: culvert/],
      [["--version"], /^\d+\.\d+\.\d+$/],
    ] as const) {
      await using process = startCulvert(argv);
      assert.equal(await within(process.exited, 5_000, "the answer"), "exit code 0");
      await assertSaid(process, says);
    }
  });
});

// ── helpers ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** A configuration without fault: what a test adds to it is the mistake. */
function good(site: Site): string[] {
  const { clusterCert, clusterKey, clusterCaCert } = serverFiles(site.dir.path);
  return flags({
    ...{ udsName: site.uds, agentPort: site.agentPort, agentBindAddress: "127.0.0.1" },
    ...{ healthPort: 0, adminPort: 0, serverBindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" },
    ...{ clusterCert, clusterKey, clusterCaCert },
  });
}

/** The same of an agent, whose server is nowhere. */
function goodAgent(site: Site): string[] {
  const ports = { proxyServerPort: site.agentPort, healthServerPort: 0, adminServerPort: 0 };
  return flags({ proxyServerHost: "127.0.0.1", ...ports, ...agentFiles(site.dir.path) });
}

let files = 0;
function file(site: Site, text: string): string {
  const path = site.dir.file(`file-${++files}.yaml`);
  writeFileSync(path, text);
  return path;
}

async function assertSaid(process: ManagedProcess, sentence: RegExp): Promise<void> {
  const said = () => process.log.some((line) => sentence.test(line));
  await waitFor(said, { deadlineMs: 1_000 }).catch(() => {
    assert.fail(`${sentence} is not in:\n${process.log.join("\n")}`);
  });
}

/** But for what this machine's limit of open files is worth. */
function warnings(process: ManagedProcess): string[] {
  const told = process.log.filter((line) => line.includes('"level":"warn"'));
  return told
    .map((line) => JSON.parse(line).msg as string)
    .filter((msg) => !/^this process may have \d+ files/.test(msg));
}
