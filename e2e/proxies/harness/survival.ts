import type { Program } from "../../harness/program.ts";
import { waitFor } from "../../harness/wait.ts";
import type { Company } from "./company.ts";

/** A conversation that began before a connection loss continues after it, and every byte arrives in order. */
export async function outlives({ traffic }: Company, agent: Program, cut: () => Promise<void>): Promise<void> {
  const talk = await traffic.talk();
  const goesOn = async (): Promise<void> => {
    const { up, down } = talk.received;
    await waitFor(() => talk.received.up > up && talk.received.down > down, { what: `${talk.name} to go on` });
  };
  await goesOn();
  await cut();
  await agent.waitForLog(/"uplink resumed"/, 20_000);
  await goesOn();
  await talk.finish();
}
