import assert from "node:assert/strict";
import { test } from "node:test";
import { waitFor } from "../harness/wait.ts";
import { NAMES } from "./harness/addresses.ts";
import { Company } from "./harness/company.ts";
import { missing } from "./harness/missing.ts";
import { Nginx } from "./harness/nginx.ts";

/** In place of nginx' 60 s; so often it cuts while nobody says a word. */
const [READ_TIMEOUT_S, CUTS] = [1, 5];

test("nginx ends TLS and cuts what is silent, and a silent stream outlives that", {
  skip: missing("nginx"),
}, async () => {
  await using company = await Company.create();
  const { serverAuthority, files } = company.pki;
  const pair = await serverAuthority.issue({ cn: "balancer", names: [NAMES.server], usage: "server" });
  const options = { pair, upstreamCa: files["cluster-ca.crt"], readTimeoutS: READ_TIMEOUT_S };
  await using nginx = await Nginx.start(company.network, options);
  const way = [`--server-address=${nginx.address}`, `--outer-ca=${files["server-ca.crt"]}`];
  await using agent = await company.connectAgent(way);
  const silent = await company.traffic.talk({ silent: true });
  const known = company.server.log.find((line) => line.includes('"tunnel opened"')) ?? "";
  assert.ok(known.includes("CN=culvert-agent"), known);

  const cuts = () => agent.log.filter((line) => line.includes('"uplink suspended"')).length;
  await waitFor(() => cuts() >= CUTS, { deadlineMs: 30_000, what: `${CUTS} cuts` });
  await company.traffic.transfer();
  await silent.finish();
  assert.equal(company.server.log.filter((line) => line.includes('"tunnel opened"')).length, 1);
});
