import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { startAgent } from "../../agent/agent.ts";
import { agentOptions } from "../../agent/context/options.ts";
import { OpenCaller, Tenants, unixCallerAt } from "../../server/testing/tenants.ts";
import { ISSUER, Issuer, nowS, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { captureLog, type LogLine } from "../harness/log-lines.ts";
import { Middlebox, messagesIn } from "../harness/middlebox.ts";
import { TARGETS } from "../harness/targets.ts";
import { waitFor } from "../harness/wait.ts";

interface Blue extends AsyncDisposable {
  readonly issuer: Issuer;
  /** Of the agent. */
  readonly lines: readonly LogLine[];
  readonly server: readonly LogLine[];
  /** Writes another token into the agent's file. */
  renew(token: string): Promise<void>;
  /** Opens TLS between the two, if that was asked for. */
  readonly box: Middlebox | undefined;
  /** A CONNECT to a target that echoes. */
  connect(): Promise<OpenCaller>;
}

/** A cluster that takes tokens of one issuer, its server, and an agent that has a token and no certificate. */
async function startBlue(lifeS: number, { boxed = false } = {}): Promise<Blue> {
  const tenants = await Tenants.create(["blue"]);
  const issuer = await Issuer.create();
  const blue = tenants.get("blue");
  const { folder } = tenants;
  await writeFile(join(folder, "blue.jwks"), JSON.stringify(await issuer.keySet()));
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks", subjects: [SUBJECT] };
  // The agent dials an address, and so asks for no name: the one cluster has none.
  const innerTls = boxed ? "auto" : "never";
  await blue.write({ agents: { sni: [], token: { jwt }, identities: [], innerTls }, callers: { sni: [] } });
  const server = await tenants.start({ agentWaitMs: 7_000, linkGraceMs: 30_000 });
  const tokenFile = join(folder, "token");
  const renew = async (token: string) => {
    await writeFile(`${tokenFile}.new`, token);
    await rename(`${tokenFile}.new`, tokenFile);
  };
  await renew(await issuer.token({ exp: nowS() + lifeS }));
  const serverPort = server.addresses.agents?.port ?? 0;
  const box = boxed ? await Middlebox.start(serverPort) : undefined;
  if (box !== undefined) await writeFile(join(folder, "outer.ca"), box.authority.cert);
  const { log, lines } = captureLog();
  const agent = await startAgent(
    {
      ...defaultsOf(agentOptions),
      allowLoopback: true,
      ...{ agentId: "a", healthServerPort: 0, adminServerPort: 0 },
      ...{ proxyServerHost: "127.0.0.1", proxyServerPort: box?.port ?? serverPort },
      caCert: join(folder, "blue.ca"),
      serviceAccountTokenPath: tokenFile,
      outerCa: box === undefined ? "" : join(folder, "outer.ca"),
    },
    { log },
  );
  const echo = await TARGETS.echo();
  return {
    issuer,
    lines,
    server: server.lines as readonly LogLine[],
    renew,
    box,
    connect: async () => OpenCaller.open(await unixCallerAt(blue.uds), "", echo.address),
    async [Symbol.asyncDispose]() {
      agent.destroy(new Error("the test is over"));
      await echo[Symbol.asyncDispose]();
      await box?.[Symbol.asyncDispose]();
      await tenants[Symbol.asyncDispose]();
    },
  };
}

async function waitForConnect(blue: Blue): Promise<OpenCaller> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await blue.connect();
    } catch (error) {
      if (attempt === 10) throw error;
    }
  }
}

describe("an agent with a token", { concurrency: true }, () => {
  test("an agent with a token alone carries CONNECTs, and a fresh token in its file moves it to a new connection", async () => {
    await using blue = await startBlue(3_600);
    const caller = await blue.connect();
    await caller.echo("before");
    await blue.renew(await blue.issuer.token({ exp: nowS() + 7_200 }));
    await waitFor(() => blue.server.some(({ msg }) => msg === "tunnel moved"), { deadlineMs: 10_000 });
    await caller.echo("after");
    caller.socket.destroy();
  });

  test("an agent whose token has ended and that has no other is asked for one, cut, and told the reason at each try", async () => {
    await using blue = await startBlue(4);
    const caller = await blue.connect();
    await caller.echo("before");
    // Clocks of two machines differ: a token counts for a while behind its end. Then the agent has 10 s.
    await waitFor(
      () => blue.server.some(({ msg, reason }) => msg === "tunnel lost" && /expired/.test(String(reason))),
      {
        deadlineMs: 90_000,
      },
    );
    await caller.closed;
    await waitFor(() => blue.lines.some(({ reason }) => /the token expired at/.test(String(reason))), {
      deadlineMs: 60_000,
    });
    await blue.renew(await blue.issuer.token());
    const next = await waitForConnect(blue);
    await next.echo("again");
    next.socket.destroy();
  });

  test("behind a middlebox that opens TLS, a token is shown inside only, and so is the one that comes after it", async () => {
    await using blue = await startBlue(60, { boxed: true });
    const caller = await blue.connect();
    await caller.echo("before");
    const renewed = await blue.issuer.token({ exp: nowS() + 120 });
    await blue.renew(renewed);
    await waitFor(() => blue.lines.some(({ msg }) => msg === "uplink moved to a new connection"), {
      deadlineMs: 15_000,
    });
    await caller.echo("after");
    const opened = blue.server.filter(({ msg }) => msg === "tunnel opened");
    assert.deepEqual(
      opened.map(({ identity, innerTls }) => [identity, innerTls]),
      [[`SUB=${SUBJECT}`, true]],
    );
    const { box } = blue;
    assert.ok(box !== undefined && box.opened.length >= 3);
    const read = Buffer.concat([box.read, ...box.opened.flatMap(({ sent }) => messagesIn(Buffer.concat(sent)))]);
    assert.equal(read.includes(renewed), false);
    assert.equal(read.toString("latin1").toLowerCase().includes("authorization"), false);
  });
});
