import assert from "node:assert/strict";
import { test } from "node:test";
import { agentOptions } from "../agent/context/options.ts";
import { doctorOptions } from "../agent/doctor/doctor.ts";
import { routerOptions } from "../router/options.ts";
import { serverOptions } from "../server/options/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { httpProxyOptions, socks5ProxyOptions } from "../sidecars/options.ts";
import { flagHint } from "./service.ts";

test("a flag of another command is hinted at by this command's name for it, or by the command that has it", async () => {
  const cases: [flag: string, known: string[], hint: string | undefined][] = [
    ["--admin-port", ["admin-address", "json"], "Here it is --admin-address."],
    ["--admin-address", ["admin-server-port"], "Here it is --admin-server-port."],
    ["--health-port", ["health-server-port"], "Here it is --health-server-port."],
    ["--server-cert", ["ca-cert", "agent-cert"], "It is one of culvert server."],
    ["--routes", [], "It is one of culvert router."],
    ["--log-level", [], "It is one of culvert server and of culvert agent and of culvert router."],
    ["--proxy-server-host", [], "It is one of culvert agent."],
    ["--admin-adress", ["admin-port"], "Did you mean --admin-port?"],
    ["--admin-adress", ["server"], "Did you mean --admin-address of culvert status?"],
    ["--health-prot", ["json"], "Did you mean --health-port of culvert server or of culvert router?"],
    ["--jsom", ["json"], undefined],
    ["--nobody-has-it", ["json"], undefined],
  ];
  for (const [flag, known, hint] of cases) assert.equal(await flagHint(flag, known), hint, flag);
});

test("a guess at an unknown flag is one that has an effect in this command", async () => {
  const problemOf = async (flag: string) => {
    const { problems } = await readOptions(serverOptions, { argv: [flag], env: {}, hint: flagHint });
    return problems.find((problem) => problem.startsWith("There is no flag"));
  };
  // --mode and --enable-profiling are flags of Konnectivity without effect here.
  const lists = "culvert server --help lists them.";
  assert.equal(await problemOf("--nope"), `There is no flag --nope. ${lists}`);
  assert.equal(await problemOf("--enable-profilling"), `There is no flag --enable-profilling. ${lists}`);
  assert.equal(await problemOf("--srever-port=1"), "There is no flag --srever-port. Did you mean --server-port?");
  assert.equal(await problemOf("--admin-prot=1"), "There is no flag --admin-prot. Did you mean --admin-port?");
});

test("all services can run on one machine: no two of their ports have the same default", () => {
  const tables = [serverOptions, agentOptions, routerOptions, socks5ProxyOptions, httpProxyOptions];
  const ports = tables.flatMap(({ command, options }) =>
    Object.entries(options).flatMap(([key, { default: port }]) => {
      // The server's port, which agents and sidecars dial. Sidecars have the port of HyperShift's, apart from servers.
      if (!/port$/i.test(key) || ["proxyServerPort", "konnectivityPort"].includes(key) || port === 0) return [];
      if (command.endsWith("-proxy") && key === "port") return [];
      return [{ port, option: `${command} ${key}` }];
    }),
  );
  assert.equal(ports.length, 12);
  for (const { port, option } of ports) {
    const same = ports.filter((other) => other.port === port).map((other) => other.option);
    assert.deepEqual(same, [option]);
  }
});

test("the options of a first day are about twenty, and all exist", () => {
  for (const { command, options, firstDay = [] } of [serverOptions, agentOptions, doctorOptions]) {
    const absent = firstDay.filter((key) => !Object.hasOwn(options, key));
    assert.deepEqual(absent, [], command);
    assert.ok(firstDay.length >= 15 && firstDay.length <= 22, `${command} has ${firstDay.length}`);
  }
});
