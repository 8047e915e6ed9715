import assert from "node:assert/strict";
import { test } from "node:test";
import { createSecureContext } from "node:tls";
import { LightAgent } from "../harness/light-agent.ts";
import { agentCertificate } from "../harness/scripted-agent.ts";
import { waitFor } from "../harness/wait.ts";
import { startWorld, type World } from "../harness/world.ts";

const AGENTS = 300;
const BACK_MS = 60_000;
const PACE_MS = 10;

test("agents that were all cut at once all get back, and a bystander's echoes all arrive", async () => {
  await using world = await startWorld({ targets: ["echo"], server: { maxAgents: AGENTS + 1 } });
  await using bystander = await world.connect("echo");
  using crowd = new Crowd(world, AGENTS);
  await crowd.gathered();

  let sent = 0;
  const pulse = setInterval(() => bystander.socket.write(`${sent++};`), PACE_MS);
  try {
    crowd.cut();
    await crowd.gathered();
  } finally {
    clearInterval(pulse);
  }
  const expected = Array.from({ length: sent }, (_, i) => `${i};`).join("");
  assert.equal((await bystander.readBytes(expected.length)).toString(), expected);
  assert.equal([...world.server.tunnels.tunnels()].length, AGENTS + 1);
});

/** Light agents that dial all at once. */
class Crowd implements Disposable {
  readonly #agents: LightAgent[];

  constructor(world: Pick<World, "dir" | "pki" | "server">, count: number) {
    const secureContext = createSecureContext({ ca: world.pki.clusterAuthority.cert, ...agentCertificate(world) });
    this.#agents = Array.from({ length: count }, (_, i) => {
      return new LightAgent({
        port: world.server.addresses.agents?.port ?? 0,
        secureContext,
        agentId: `light-${i + 1}`,
      });
    });
    for (const agent of this.#agents) agent.dial();
  }

  async gathered(): Promise<void> {
    const missing = () => this.#agents.filter(({ connected }) => !connected).length;
    await waitFor(() => missing() === 0, { deadlineMs: BACK_MS, what: "every agent is connected" });
  }

  cut(): void {
    for (const agent of this.#agents) agent.cut();
  }

  [Symbol.dispose](): void {
    for (const agent of this.#agents) agent.stop();
  }
}
