import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { createLogger } from "../../shared/process/logger.ts";
import { StrangerLog } from "../../shared/process/stranger-log.ts";
import { ServerMetrics } from "../metrics.ts";
import { FileRoom } from "./file-room.ts";

test("a server that runs out of file descriptors says so with figures, counts it, and refuses connections in words", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lines: Record<string, unknown>[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  const log = createLogger({ level: "info", format: "json", name: "server", destination });
  const metrics = new ServerMetrics({ processMetrics: false });
  let open = 100;
  const room = new FileRoom({ metrics, strangers: new StrangerLog(log), limit: 1_024, count: async () => open });
  const pass = async (ms: number) => {
    t.mock.timers.tick(ms);
    await turn();
  };
  room.start();
  room.mustHaveRoom();
  await turn();
  room.mustHaveRoom();
  assert.deepEqual(lines, []);

  open = 930;
  await pass(1_500);
  room.mustHaveRoom();
  open = 1_020;
  await pass(500);
  assert.throws(() => room.mustHaveRoom(), {
    code: "overloaded",
    message: "this server has 1020 of its 1024 files open: raise its limit (ulimit -n, LimitNOFILE=)",
  });
  open = 950;
  await pass(500);
  room.mustHaveRoom(); // who asks is served by what is true now
  assert.equal(room.seen?.left, "none", "who looks at readiness is not sent to and fro");
  open = 100;
  await pass(500);
  room.mustHaveRoom();
  room.stop();

  const told = lines.map(({ level, open, limit, msg }) => `${level} ${open}/${limit} ${msg}`);
  assert.equal(told.length, 3);
  assert.match(told[0] ?? "", /^warn 930\/1024 file descriptors run low/);
  assert.match(told[1] ?? "", /^error 1020\/1024 file descriptors are nearly used up.*ulimit -n/);
  assert.match(told[2] ?? "", /^info 100\/1024 file descriptors are enough again/);
  assert.match(await metrics.registry.metrics(), /^culvert_server_files_used_up_total 1$/m);
});
