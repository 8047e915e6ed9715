import assert from "node:assert/strict";
import { connect as connectTcp } from "node:net";
import { after, before, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { within } from "../harness/wait.ts";

let tenants: TwoTenants;
before(async () => {
  tenants = await startTwoTenants({ server: { agentAllowedOrigins: "https://console.example" } });
});
after(async () => {
  await tenants?.[Symbol.asyncDispose]();
});

const UPGRADE = [
  ...["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
  ...[`Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}`, `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`],
];

/** The head of the answer to blue's agent for these lines. */
async function asked(lines: readonly string[], { version = "1.1", host = "blue.example" } = {}): Promise<string> {
  const { blue, agentPort } = tenants;
  const raw = connectTcp({ port: agentPort, host: "127.0.0.1" }).on("error", () => {});
  const socket = connectTls({ socket: raw, servername: blue.sni, ca: blue.ca, ...(await blue.agentPair) });
  try {
    return await within(
      new Promise<string>((resolve, reject) => {
        let text = "";
        socket.on("error", reject).on("end", () => resolve(text));
        socket.on("data", (chunk: Buffer) => {
          text += chunk;
          if (text.includes("\r\n\r\n")) resolve(text);
        });
        socket.write(
          [`GET ${TUNNEL_PATH} HTTP/${version}`, `Host: ${host}`, ...UPGRADE, ...lines, "", ""].join("\r\n"),
        );
      }),
      5_000,
      "an answer",
    );
  } finally {
    socket.destroy();
  }
}

const manyLines = Array.from({ length: 100 }, (_, index) => `X-${index}: y`);

for (const [what, lines, more, answer] of [
  ["an agent's own upgrade", [], {}, /^HTTP\/1\.1 101 /],
  ["Content-Length: 0", ["Content-Length: 0"], {}, /^HTTP\/1\.1 400 .*leave content-length out/s],
  ["a chunked body", ["Transfer-Encoding: chunked"], {}, /^HTTP\/1\.1 400 .*leave transfer-encoding out/s],
  ["Expect", ["Expect: 100-continue"], {}, /^HTTP\/1\.1 400 .*leave expect out/s],
  ["a second Host", ["Host: blue.example"], {}, /^HTTP\/1\.1 400 .*one Host/s],
  ["a hundred more header lines", manyLines, {}, /^HTTP\/1\.1 431 .*more than 100 header lines/s],
  ["HTTP/1.0", [], { version: "1.0" }, /^HTTP\/1\.1 (505|400) /],
  ["HTTP/2.0", [], { version: "2.0" }, /^HTTP\/1\.1 (505|400) /],
  ["another Origin", ["Origin: https://evil.example"], {}, /^HTTP\/1\.1 403 .*--agent-allowed-origins/s],
  ["an allowed Origin", ["Origin: https://console.example"], {}, /^HTTP\/1\.1 101 /],
  ["the Host of another cluster", [], { host: "red.example" }, /^HTTP\/1\.1 421 .*Host names cluster "red"/s],
  ["that Host with a port", [], { host: "red.example:443" }, /^HTTP\/1\.1 421 /],
  ["an address as Host, as behind a balancer", [], { host: "192.0.2.1:8091" }, /^HTTP\/1\.1 101 /],
] as const) {
  test(`${what}: ${answer}`, async () => {
    assert.match(await asked(lines, more), answer);
  });
}

test("an upgrade whose SNI and Host name different clusters leaves a line in the log, with who sent it", async () => {
  await asked([], { host: "red.example" });
  const line = await tenants.server.waitForLog('"code":421');
  assert.match(line, /"level":"warn".*"cluster":"blue".*Host names cluster/);
});
