import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { createServer, connect as dialTls } from "node:tls";
import { createLogger } from "../../shared/process/logger.ts";
import { defaultsOf } from "../../shared/process/options.ts";
import { StrangerLog } from "../../shared/process/stranger-log.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { ServerMetrics } from "../metrics.ts";
import { serverOptions } from "../options.ts";
import { collect, pki, until } from "../testing.ts";
import { type AgentDoor, type UpgradeDeps, UpgradePort } from "./upgrade.ts";

test("an agent that is turned away hears 503 and when to come back; a stranger only that it is one", async () => {
  const log = createLogger({ level: "silent", format: "json", name: "server" });
  const port = await UpgradePort.create({
    options: { ...defaultsOf(serverOptions), serverId: "srv" },
    metrics: new ServerMetrics({ processMetrics: false }),
    log,
    strangers: new StrangerLog(log),
    draining: () => false,
    onDropped: () => assert.fail(),
  } as Partial<UpgradeDeps> as UpgradeDeps); // an agent that is refused gets no further
  const tls = createServer({ ...pki.server, ca: pki.ca.cert, requestCert: true, rejectUnauthorized: false });
  const door = {
    tunnels: { name: "default" },
    identities: [],
    rule: "a list",
    objection: () => undefined,
  } as unknown as AgentDoor;
  tls.on("secureConnection", (socket) => port.take(socket, door, 4_200));
  await once(tls.listen(0, "127.0.0.1"), "listening");

  const ask = async (by: object): Promise<string> => {
    const socket = dialTls({ port: (tls.address() as AddressInfo).port, host: "127.0.0.1", ca: pki.ca.cert, ...by });
    socket.on("error", () => {});
    const reads = collect(socket);
    socket.write(
      `GET ${TUNNEL_PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n` +
        `Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}\r\nSec-WebSocket-Protocol: ${SUBPROTOCOL}\r\n\r\n`,
    );
    await until(() => socket.destroyed || socket.readableEnded);
    return reads.join("");
  };
  const turnedAway = await ask(pki.agent);
  assert.match(turnedAway, /^HTTP\/1\.1 503 /);
  assert.match(turnedAway, /\r\nretry-after: 5\r\n/i);
  assert.match(turnedAway, /come back in 5 s\n$/);
  const stranger = await ask({});
  assert.match(stranger, /^HTTP\/1\.1 401 /);
  assert.doesNotMatch(stranger, /retry-after/i);
  tls.close();
  await port.close();
});
