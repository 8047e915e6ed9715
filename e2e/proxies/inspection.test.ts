import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Mitmproxy } from "./harness/mitmproxy.ts";
import { failureOf } from "./harness/said.ts";

describe("mitmproxy, which opens TLS with a CA of its own", { skip: missing("mitmdump") }, () => {
  let company: Company;

  before(async () => {
    company = await Company.create();
  });
  after(() => company?.[Symbol.asyncDispose]());

  test("gets nothing to read of an agent that does not trust it, and the agent says who is in the way", async () => {
    await using proxy = await Mitmproxy.start(company.network, company.pki.files["cluster-ca.crt"]);
    await using agent = company.startAgent([`--proxy=${proxy.url}`]);
    assert.match((await failureOf(agent)).reason, /intercepted by ".*mitmproxy.*"/);
    assert.equal(
      agent.log.some((line) => line.includes('"uplink connected"')),
      false,
    );
    assert.equal((await proxy.flows()).includes("/culvert/v1/tunnel"), false);
    assert.equal(await company.network.triedToPass(), 0);
  });
});
