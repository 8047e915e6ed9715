import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { before, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { connectThrough, established } from "../harness/caller.ts";
import { chapterOf, portsHere, runPasted } from "../harness/pasted.ts";
import { MAIN, RUNTIME, requireBuilt, startCulvert } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { TARGETS } from "../harness/targets.ts";
import { TempDir } from "../harness/temp.ts";

before(requireBuilt);

test("the example of many clusters prints what the page says, and ends what it has started", async () => {
  using dir = new TempDir();
  const { blocks, free, script } = await chapterOf("docs/clusters.md", "An example to paste");
  // curl shows HTTP's lines with their CR.
  const printed = (await runPasted(`${script}\necho "left: $(jobs -p)."`, dir.path)).replaceAll("\r", "");
  const expected =
    blocks.find((block) => block.startsWith("\n")) ?? assert.fail("the page does not say what is printed");
  assert.ok(printed.includes(free(expected)), printed);
  assert.match(printed, /^blue +open +1 .*\nred +open +1 /m);
  assert.match(printed, /^blue +blue-node +up /m);
  assert.match(printed, /^left: \.$/m);
});

test("where a port is taken, the example of many clusters shows the log that says so", async () => {
  using dir = new TempDir();
  const { ports, script } = await chapterOf("docs/clusters.md", "An example to paste");
  const port = Number(ports.get("8090"));
  await using taken = createServer().listen(port, "127.0.0.1");
  await once(taken, "listening");
  const [upToReady = ""] = script.split("\nthrough()"); // what comes behind it is of no use without a server
  const impatient = upToReady.replace("--retry 20", "--retry 1").replace("\nready()", "\nwait $server\nready()");
  const printed = await runPasted(`${impatient}\nkill $blue $red`, dir.path);
  assert.match(printed, new RegExp(`many/server\\.log <==\n.*port ${port}: it is in use .*--server-port`), printed);
});

test("the example by hand prints what its page says, and ends what it has started", async () => {
  using dir = new TempDir();
  const { blocks, script, ports } = await chapterOf("docs/by-hand.md", "An example to paste");
  const own = script
    .replaceAll("/tmp/culvert.sock", join(dir.path, "s"))
    .replace("--agent-port", `--health-port ${ports.get("8092")} --admin-port ${ports.get("8095")} --agent-port`)
    .replace(
      "--allow-loopback",
      `--health-server-port ${ports.get("8093")} --admin-server-port ${ports.get("8094")} $&`,
    );
  const printed = (await runPasted(`${own}\necho "left: $(jobs -p)."`, dir.path)).replaceAll("\r", "");
  const expected = blocks.find((block) => block.startsWith("\n"))?.trimStart();
  assert.equal(printed, `${expected}left: .\n`);
  // git ignores it.
  assert.deepEqual(readdirSync(dir.path), ["pki"]);
});

test("the demo prints what the README shows of it", async () => {
  const { blocks } = await chapterOf("README.md", "Try it");
  const shown = blocks.find((block) => block.startsWith("\n"))?.trim() ?? assert.fail("the README shows no output");
  assert.ok(shown.split("\n").length <= 10, shown);
  const same = (text: string) =>
    text.replaceAll(/culvert-demo-\S+|\d+(?:\.\d+)?/g, "N").replaceAll(/ +N m?s/g, " N ms");
  const printed = same(await runPasted(`${process.execPath} ${MAIN} demo --once`, ROOT));
  for (const line of shown.split("\n").filter((each) => each !== "  …"))
    assert.ok(printed.includes(same(line)), printed);
});

test("the commands that culvert pki prints make a CONNECT", async () => {
  using dir = new TempDir();
  const { free } = await portsHere();
  const printed = await runPasted(`${RUNTIME} ${MAIN} pki --dir pki`, dir.path);
  const [server, agent, curl] = (printed.split("a terminal of its own:\n")[1] ?? "")
    .split(/\n{2,}(?= {2}\S)/)
    .map((command) => command.trim().replace(/^node/, process.execPath));
  const ready = free("http://127.0.0.1:8093/readyz");
  const script = `trap 'kill $(jobs -p) 2>/dev/null' EXIT
    ${free(`${server} --health-port 8092 --admin-port 8095`)} > server.log 2>&1 &
    ${free(`${agent} --health-server-port 8093 --admin-server-port 8094`)} > agent.log 2>&1 &
    curl -sf --retry 20 --retry-connrefused --retry-delay 1 ${ready} || tail -n 3 *.log
    ${free(curl ?? "")} -sS`;
  assert.equal(await runPasted(script, dir.path), "ok\nok\n");
});

test("the commands of docs/kubernetes.md carry a CONNECT by each of its egress files", async () => {
  using dir = new TempDir();
  await using echo = await TARGETS.echo();
  const page = readFileSync(join(ROOT, "docs/kubernetes.md"), "utf8");
  const blocks = (language: string) =>
    [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm"))].map(([, text = ""]) => text);
  const [callers, agents, health, agentHealth] = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
  // Nothing but paths, ports and the address behind the server's name are other ones than the page's.
  const here = (text: string) =>
    text
      .replaceAll(/\/etc\/(kubernetes\/)?culvert/g, dir.path)
      .replaceAll("8090", String(callers))
      .replaceAll("8091", String(agents));
  const [pki, server, agent] = blocks("sh").map((text) =>
    here(text).replaceAll("\\\n", " ").trim().split(/\s+/).slice(1),
  );
  await promisify(execFile)(RUNTIME, [MAIN, ...(pki ?? [])]);
  await using _running = startCulvert([...(server ?? []), `--health-port=${health}`, "--admin-port=0"]);
  const onLoopback = [
    "--server-address=127.0.0.1",
    "--allow-loopback",
    `--health-server-port=${agentHealth}`,
    "--admin-server-port=0",
  ];
  await using connected = startCulvert([...(agent ?? []), ...onLoopback]);
  await connected.waitForHealth(`http://127.0.0.1:${agentHealth}/readyz`);

  const [uds, tcp] = blocks("yaml")
    .map((text) => parse(here(text)))
    .filter(({ kind }) => kind === "EgressSelectorConfiguration")
    .map(({ egressSelections }) => egressSelections[0].connection);
  assert.deepEqual([uds.proxyProtocol, tcp.proxyProtocol], ["HTTPConnect", "HTTPConnect"]);
  const { url, tlsConfig } = tcp.transport.tcp;
  const [ca, cert, key] = [tlsConfig.caBundle, tlsConfig.clientCert, tlsConfig.clientKey].map((path: string) =>
    readFileSync(path, "utf8"),
  ) as [string, string, string];
  const { hostname: servername, port } = new URL(url);
  for (const listener of [
    { path: uds.transport.uds.udsName },
    { host: "127.0.0.1", port: Number(port), tls: { ca, cert, key, servername } },
  ]) {
    await using connection = await established(connectThrough(listener, echo.address));
    await connection.send("hello");
    assert.equal((await connection.readBytes(5)).toString(), "hello");
  }
});
