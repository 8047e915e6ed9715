import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { startFlood } from "../harness/flood.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { freePort } from "../harness/targets/absent.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";

const GET = "GET / HTTP/1.1\r\nHost: red.example\r\n\r\n";

/** Where the flood goes, and the flags of the server that are needed for it. */
interface Way {
  readonly flags?: (port: number) => Readonly<Record<string, string | number>>;
  readonly where: (tenants: TwoTenants, port: number) => object;
}

const WAYS: Readonly<Record<string, Way>> = {
  "the callers' port": { where: ({ callerPort: port, red }) => ({ port, servername: red.sni }) },
  "the agents' port": { where: ({ agentPort: port, red }) => ({ port, servername: red.sni }) },
  "a unix socket": { where: ({ red }) => ({ path: red.uds }) },
  "the HTTP proxy": {
    flags: (port) => ({ httpPort: port }),
    where: (_tenants, port) => ({ port }),
  },
  "the agents' port without TLS": {
    flags: (port) => ({ agentInsecurePort: port, innerTls: "auto" }),
    where: (_tenants, port) => ({ port }),
  },
};

/** At each change the ports that everybody reaches. The others differ from them in having no TLS. */
const USUAL = ["the callers' port", "the agents' port"];

for (const [name, { flags, where }] of Object.entries(WAYS)) {
  if (!WHOLE_MATRICES && !USUAL.includes(name)) continue;
  test(`requests in one packet by the thousand on ${name}: one is answered, and another tenant notices nothing`, async (t) => {
    const port = await freePort();
    await using tenants = await startTwoTenants({
      ...{ server: flags?.(port) ?? {}, calm: flags?.(await freePort()) ?? {} },
      process: GROWTH_MEASURED,
    });
    const growth = await ResidentGrowth.of(tenants.server, tenants.calmServer);
    await using flood = await startFlood("pipelined", { ...where(tenants, port), connections: 4, request: GET });
    t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
    await growth.assertBounded();
    const { opened, bytes } = await flood.stop();
    assert.ok(Number(bytes) > 1_000_000 && Number(opened) > 8, `${bytes} bytes in ${opened} connections`);
  });
}
