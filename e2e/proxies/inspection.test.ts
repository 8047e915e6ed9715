import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { NO_CERTIFICATE, nodeOnly } from "../harness/processes.ts";
import { failureOf } from "./harness/agent-log.ts";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Mitmproxy } from "./harness/mitmproxy.ts";
import { outlives } from "./harness/survival.ts";

const UPGRADE = "/culvert/v1/tunnel";

describe("mitmproxy, which opens TLS with a CA of its own", { skip: missing("mitmdump") }, () => {
  let company: Company;
  let upstreamCa: string;

  before(async () => {
    company = await Company.create();
    upstreamCa = company.pki.files["cluster-ca.crt"];
  });
  after(() => company?.[Symbol.asyncDispose]());

  const NAMES = nodeOnly(NO_CERTIFICATE);
  test("reads nothing of an agent that does not trust it, and the agent names it", NAMES, async () => {
    await using proxy = await Mitmproxy.start(company.network, { upstreamCa });
    await using agent = company.startAgent([`--proxy=${proxy.url}`]);
    assert.match((await failureOf(agent)).reason, /intercepted by ".*mitmproxy.*"/);
    assert.equal((await proxy.flows()).includes(UPGRADE), false);
    assert.equal(await company.network.triedToPass(), 0);
  });

  const identities = { certificate: "CN=culvert-agent", token: SUBJECT } as const;
  for (const identity of ["certificate", "token"] as const) {
    test(`sees a tunnel and reads nothing of it: the agent authenticates by its ${identity} inside`, async () => {
      await using proxy = await Mitmproxy.start(company.network, { upstreamCa });
      const trusting = [`--proxy=${proxy.url}`, `--outer-ca=${proxy.caFile}`];
      await using agent = await company.connectAgent(trusting, { identity });
      const pieces = await company.traffic.transfer();
      await agent.stop();
      const flows = await proxy.flows();
      assert.ok(flows.includes(UPGRADE), "the tunnel went through it");
      for (const piece of pieces) assert.equal(flows.includes(piece), false);
      const known = company.server.log.findLast((line) => line.includes('"tunnel opened"')) ?? "";
      assert.ok(known.includes(identities[identity]), known);
    });
  }

  test("reads everything where inner TLS is off and it has the agent's own certificate", async () => {
    const { files } = company.pki;
    const clientPair = [files["agent.crt"], files["agent.key"]].map((file) => readFileSync(file, "utf8")).join("");
    await using proxy = await Mitmproxy.start(company.network, { upstreamCa, clientPair });
    const both = company.dir.file("both-ca.crt");
    writeFileSync(both, [upstreamCa, proxy.caFile].map((file) => readFileSync(file, "utf8")).join(""));
    await using agent = await company.connectAgent([`--proxy=${proxy.url}`, "--inner-tls=never", `--ca-cert=${both}`]);
    const pieces = await company.traffic.transfer();
    await agent.stop();
    const flows = await proxy.flows();
    assert.ok(pieces.some((piece) => flows.includes(piece)));
  });

  test("is killed and started again, and no stream ends", async () => {
    await using proxy = await Mitmproxy.start(company.network, { upstreamCa });
    await using agent = await company.connectAgent([`--proxy=${proxy.url}`, `--outer-ca=${proxy.caFile}`]);
    await outlives(company, agent, () => proxy.restart());
  });
});
