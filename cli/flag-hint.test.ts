import assert from "node:assert/strict";
import { test } from "node:test";
import { flagHint } from "./flag-hint.ts";

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
