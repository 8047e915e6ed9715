import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { type AddressInfo, connect } from "node:net";
import { after, before, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { until } from "../../shared/basics/testing/wait.ts";
import { numbered } from "../harness/cluster-files.ts";
import { requireBuilt } from "../harness/processes.ts";
import { TARGETS } from "../harness/targets.ts";
import { openPage, startBrowser } from "./browser.ts";
import { PageWorld } from "./clusters.ts";

let browser: Browser;
/** Blue has an agent and a refused caller, and the other cluster nobody. */
let world: PageWorld;
before(async () => {
  requireBuilt();
  browser = await startBrowser();
  world = await PageWorld.start(["a-cluster-with-quite-a-long-name-and-no-agent"]);
  await world.startAgent("agent-1");
  await world.connect("169.254.169.254:80");
});
after(async () => {
  await browser.close();
  await world[Symbol.asyncDispose]();
});

const DAY_MS = 86_400_000;

/** The text of an element, once it matches. */
async function shows(page: Page, selector: string, pattern: RegExp): Promise<void> {
  let seen = "";
  await until(
    async () => {
      seen = (await page.locator(selector).allTextContents()).join("\n");
      return pattern.test(seen);
    },
    () => `${selector} shows ${pattern}: ${seen}`,
  );
}

test("a link that is cut is shown as lost, and then as resumed, with how it was lost", async (t) => {
  await using own = await PageWorld.start([]);
  await own.startAgent("agent-1");
  await using opened = await openPage(browser, `${own.url}#/cluster/blue`);
  const { page, complaints } = opened;
  await shows(page, ".agents", /agent-1 connected/);
  await shows(page, ".agents", /Resumed0 times/);
  const cutAt = performance.now();
  await own.relay.unplug();
  await shows(page, ".agents", /agent-1 link lost[\s\S]*The connection was lost \d+ s ago/);
  t.diagnostic(`shown ${Math.round(performance.now() - cutAt)} ms after the cut`);
  await shows(page, "h1", /blue link lost/);
  await own.relay.plug();
  await shows(page, ".agents", /agent-1 connected[\s\S]*Lost 1 time[\s\S]*reset it[\s\S]*Resumed1 time/);
  assert.deepEqual(complaints, []);
});

test("a refusal is shown with its code, its sentence and what to do next", async () => {
  await using opened = await openPage(browser, `${world.url}#/refusals`);
  const { page, complaints } = opened;
  await shows(page, ".refusals", /forbidden .*169\.254\.0\.0\/16/);
  await shows(page, ".refusals", /caller CN=kube-apiserver at 127\.0\.0\.1 asked for 169\.254\.169\.254:80 · blue/);
  await shows(page, ".refusals", /Next: if the target should be reachable/);
  assert.deepEqual(complaints, []);
});

test("three faults are found from the page alone: links cut again and again, a tenant at its limit, an expired caller", async (t) => {
  await using own = await PageWorld.start([], ["cutoff", "greedy"]);
  for (const name of ["blue", "cutoff", "greedy"]) await own.startAgent(`agent-of-${name}`, {}, name);
  await own.cluster("greedy").write({ limits: { connectsPerSecond: 1 }, callers: { uds: undefined } });
  await until(async () => {
    const { status } = await own.connect("10.0.0.1:1", "greedy");
    return status === 429;
  });
  const ended = { notBefore: new Date(Date.now() - 2 * DAY_MS), notAfter: new Date(Date.now() - DAY_MS) };
  const o = ["callers:blue"];
  const expired = await own.blue.authority.issue({ cn: "kube-apiserver", o, usage: "client", ...ended });
  await own.connect("10.0.0.1:1", "blue", expired);
  const resumes = () => [...own.tunnels()].map(({ carriers }) => carriers.resumes);
  for (let cuts = 1; cuts <= 2; cuts++) {
    own.relay.cut("rst");
    await until(() => resumes().every((times) => times === cuts));
  }
  const openedAt = performance.now();
  await using opened = await openPage(browser, own.url);
  const { page } = opened;
  await shows(page, "tbody", /cutoffcut often12/);
  t.diagnostic(`0 clicks, ${Math.round(performance.now() - openedAt)} ms: links are cut`);
  await page.getByRole("link", { name: "cutoff" }).click();
  await shows(page, ".agents", /Lost 2 times, last .* reset it .* That connection had lived for \d+ s/);
  t.diagnostic(`1 click, ${Math.round(performance.now() - openedAt)} ms: how, and after which time`);
  await page.getByRole("link", { name: "Refusals" }).click();
  await shows(page, ".refusals", /limited cluster "greedy" is at its limit: 1 CONNECTs a second/);
  await shows(page, ".refusals", /unauthenticated the client certificate expired on .* · blue · /);
  await shows(
    page,
    ".refusals",
    /with a certificate of subject CN=kube-apiserver, issuer CN=.*, serial [0-9A-F]+ · blue/,
  );
  await shows(
    page,
    ".refusals",
    /Next: give whoever shows this certificate a renewed one; kube-apiserver .* restart it\./,
  );
  t.diagnostic(`2 clicks, ${Math.round(performance.now() - openedAt)} ms: the limit, and the certificate`);
});

/** Changes of the table while three messages come. */
const CHANGED_ROWS = `new Promise((resolve) => {
  let changes = 0;
  let messages = 0;
  new MutationObserver((list) => (changes += list.length)).observe(document.querySelector("tbody"), {
    ...{ childList: true, subtree: true, characterData: true, attributes: true },
  });
  const events = new EventSource("events");
  events.addEventListener("changes", () => {
    if (++messages < 3) return;
    events.close();
    resolve(changes);
  });
})`;

test("a thousand clusters are listed, searched, filtered by state and sorted, and a change of one is shown at once", async (t) => {
  await using many = await PageWorld.start(numbered("tenant", 999));
  await many.startAgent("agent-1");
  await using opened = await openPage(browser, many.url);
  const { page, complaints } = opened;
  await shows(page, "[role=status]", /^1,000 clusters$/m);
  await shows(page, "tbody tr:last-child", /^blueok/); // the worst come first
  assert.equal(await page.locator("tbody tr").count(), 1_000);
  await page.keyboard.press("/");
  await page.keyboard.type("tenant 77");
  await shows(page, "[role=status]", /^19 of 1000 clusters$/m);
  await page.getByRole("searchbox").fill("");
  await page.getByLabel("State").selectOption({ label: "ok (1)" });
  await shows(page, "tbody", /^blueok1/);
  await page.getByLabel("State").selectOption("");
  await page.getByRole("button", { name: "Agents" }).click();
  await shows(page, "th[aria-sort=descending]", /Agents/);
  await shows(page, "tbody tr:first-child", /^blueok/);
  assert.equal(await page.evaluate(CHANGED_ROWS), 0, "messages without news draw no row again");
  const cutAt = performance.now();
  await many.relay.unplug();
  await shows(page, "tbody tr:first-child", /^bluelink lost/);
  t.diagnostic(`shown ${Math.round(performance.now() - cutAt)} ms after the cut`);
  assert.deepEqual(complaints, []);
});

test("markup and invisible characters in an agent's words are shown as text", async () => {
  const cn = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\u0007\u202e";
  const { cert, key } = await world.blue.issueAgent(cn);
  const files = { agentCert: `${world.folder}/odd.crt`, agentKey: `${world.folder}/odd.key` };
  writeFileSync(files.agentCert, cert);
  writeFileSync(files.agentKey, key);
  const agent = await world.startAgent("agent-2", files);
  await using opened = await openPage(browser, `${world.url}#/cluster/blue`);
  const { page, complaints } = opened;
  await shows(
    page,
    ".agents",
    /agent-2[\s\S]*CN=.*<script>document\.title='owned'<\/script><img src=x onerror=alert\(1\)>/,
  );
  await shows(page, ".agents", /\\u\{7\}\\u\{202e\}/);
  assert.equal(await page.locator(".agents :is(script, img)").count(), 0);
  assert.match(await page.title(), /^blue · srv-1 · culvert$/);
  assert.deepEqual(complaints, []);
  await agent.close();
});

/** An HTTP proxy that leads to the agents' port, whatever it is asked for. */
async function startProxy(port: number) {
  const proxy = createServer();
  proxy.on("connect", (_request, socket) => {
    const far = connect(port, "127.0.0.1", () => socket.write("HTTP/1.1 200 OK\r\n\r\n"));
    for (const each of [socket, far]) each.on("error", () => socket.destroy()).on("close", () => far.destroy());
    far.pipe(socket).pipe(far);
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  return proxy;
}

test("the proxy on an agent's way is shown, without its password", async (t) => {
  const proxy = await startProxy(world.relay.port);
  t.after(() => proxy.close());
  const { port } = proxy.address() as AddressInfo;
  const agent = await world.startAgent("agent-3", { proxy: [`http://me:secret@127.0.0.1:${port}`], serverAddress: "" });
  await using opened = await openPage(browser, `${world.url}#/cluster/blue`);
  const { page } = opened;
  await shows(page, ".agents", new RegExp(`agent-3[\\s\\S]*Through its proxyhttp://127.0.0.1:${port}Identity`));
  assert.doesNotMatch(await page.content(), /secret/);
  await agent.close();
});

test("a check of a cluster shows its steps, and the one that fails with its sentence", async () => {
  await using echo = await TARGETS.echo();
  await using opened = await openPage(browser, `${world.url}#/cluster/blue`);
  const { page, complaints } = opened;
  const check = async (target: string): Promise<void> => {
    await page.getByLabel("Target").fill(target);
    await page.getByRole("button", { name: "Check this cluster" }).click();
  };
  await check(echo.address);
  await shows(page, ".good", /is reached, through agent "agent-1"/);
  await shows(page, ".steps", /The agent dials the target: passed in/);
  await check("127.0.0.1:1");
  await shows(page, ".steps", /The agent dials the target: failed after .*refused the connection/);
  assert.deepEqual(complaints, []);
});

test("where the time of a CONNECT goes is shown for each part of it", async () => {
  await using echo = await TARGETS.echo();
  const { socket } = await world.connect(echo.address);
  socket.destroy();
  await using opened = await openPage(browser, `${world.url}#/server`);
  const { page, complaints } = opened;
  const parts = ["Authenticate the caller", "Pick an agent", "To the agent and back", "Agent dials the target"];
  const shown = parts.map((part) => `${part}[\\d.]+ m?s`).join("[\\s\\S]*");
  await shows(page, "section:has(#connect-time)", new RegExp(shown));
  assert.deepEqual(complaints, []);
});

test("when the server is gone the page says so, and goes on when it is back", async () => {
  await using own = await PageWorld.start([]);
  await using opened = await openPage(browser, own.url);
  const { page } = opened;
  await shows(page, "tbody", /^blueno agent/);
  await own.stop();
  await shows(page, ".banner", /No answer from the server for/);
  await own.restart();
  await until(async () => (await page.locator(".banner").count()) === 0);
  await shows(page, "tbody", /^blueno agent/);
});

test("the page of one server shows the others of --admin-peers, and where a cluster has agents", async () => {
  const peer = new URL(world.url).host;
  await using own = await PageWorld.start([], [], { serverId: "srv-2", adminPeers: [peer, "127.0.0.1:1"] });
  await using opened = await openPage(browser, `${own.url}#/server`);
  const { page, complaints } = opened;
  await shows(page, "section:has(#others) tbody", new RegExp(`srv-1 ${peer}12`));
  await shows(page, "section:has(#others) tbody", /127\.0\.0\.1:1no answer: .*ECONNREFUSED/);
  await page.goto(`${own.url}#/cluster/blue`);
  await shows(page, "section:has(#agents)", /No agent is connected here\.1 agent at server srv-1\./);
  assert.deepEqual(complaints, []);
});

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
interface AxeResult {
  readonly violations: readonly {
    readonly id: string;
    readonly impact: string;
    readonly nodes: readonly { readonly html: string }[];
  }[];
}

test("every view can be used with a screen reader and a keyboard, in light and dark colours", async () => {
  await using opened = await openPage(browser, world.url);
  const { page } = opened;
  for (const [view, element] of [
    ["", "tbody tr"],
    ["#/cluster/blue", ".agents"],
    ["#/refusals", ".refusals"],
    ["#/server", "tbody tr"],
  ] as const) {
    await page.goto(world.url + view);
    await page.locator(element).first().waitFor();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      await page.evaluate(AXE);
      const { violations } = (await page.evaluate("axe.run()")) as AxeResult;
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      const found = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
      assert.deepEqual(found, [], `${view} ${colorScheme}`);
    }
  }
});

test("on a phone no view is wider than the screen", async () => {
  await using opened = await openPage(browser, world.url, { viewport: { width: 360, height: 740 } });
  const { page } = opened;
  for (const view of ["", "#/cluster/blue", "#/refusals", "#/server"]) {
    await page.goto(world.url + view);
    await page.locator("h1").first().waitFor();
    const width = Number(await page.evaluate("document.documentElement.scrollWidth"));
    assert.ok(width <= 360, `${view} is ${width} pixels wide`);
  }
});
