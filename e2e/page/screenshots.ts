/**
 * Makes the pictures of docs/status-page.md: `npm run screenshots`. The page shows a server in this process with a few
 * clusters, two of them with faults, after a quarter of an hour that takes some seconds here.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { mock } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { TARGETS } from "../harness/targets.ts";
import { openPage, startBrowser } from "./browser.ts";
import { PageWorld } from "./clusters.ts";

const FOLDER = process.env["CULVERT_IMAGES"] ?? join(ROOT, "docs/images");
const STEPS = 60;
const STEP_MS = 15_000;

mock.timers.enable({ apis: ["setInterval"] });
await using world = await PageWorld.start(["payments-eu", "staging"], ["checkout", "search", "telemetry"]);
await using echo = await TARGETS.echo();
await world.cluster("checkout").write({ limits: { connectsPerSecond: 2 }, callers: { uds: undefined } });
for (const [cluster, agent] of [
  ["blue", "agent-7d4f-x2k"],
  ["blue", "agent-7d4f-q9p"],
  ["checkout", "agent-1"],
  ["search", "agent-1"],
] as const) {
  await world.startAgent(agent, {}, cluster);
}
for (let step = 0; step < STEPS; step++) {
  const open = Math.round(4 + 3 * Math.sin(step / 6) + (step % 7) / 3);
  const held = await Promise.all(Array.from({ length: open }, () => world.connect(echo.address)));
  for (const connection of held) {
    await connection.send(Buffer.alloc(4_096 * (1 + (step % 5))));
  }
  mock.timers.tick(STEP_MS);
  if (step < STEPS - 1) for (const connection of held) connection.end();
}
mock.timers.reset();
for (let times = 0; times < 8; times++) await world.connect("10.20.0.7:10250", "checkout").catch(() => {});
await world.connect("169.254.169.254:80").catch(() => {});
for (let cuts = 1; cuts <= 2; cuts++) {
  world.relay.cut("rst");
  await until(() => [...world.tunnels()].every(({ carriers }) => carriers.resumes === cuts));
}

mkdirSync(FOLDER, { recursive: true });
await using browser = await startBrowser();
for (const [name, view, element, options] of [
  ["clusters", "", "tbody tr", {}],
  ["cluster", "#/cluster/blue", ".agents", {}],
  ["refusals", "#/refusals", ".refusals", {}],
  ["server", "#/server", "tbody tr", { colorScheme: "dark" }],
  ["phone", "", "tbody tr", { viewport: { width: 390, height: 720 }, colorScheme: "dark" }],
] as const) {
  await using opened = await openPage(browser, world.url + view, {
    viewport: { width: 1_100, height: 720 },
    ...options,
  });
  const { page } = opened;
  await page.locator(element).first().waitFor();
  if (name === "cluster") {
    await page.getByLabel("Target").fill(echo.address);
    await page.getByRole("button", { name: "Check this cluster" }).click();
    await page.locator(".good").waitFor();
  }
  await page.screenshot({
    path: join(FOLDER, `status-page-${name}.png`),
    fullPage: name !== "phone" && name !== "server",
  });
}
process.exit(0);
