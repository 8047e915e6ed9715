import assert from "node:assert/strict";
import type { Program } from "../../kubernetes/world/program.ts";

export interface Failure {
  /** A sentence. */
  readonly reason: string;
  /** Before the next attempt. */
  readonly waitMs: number;
}

/** Waits for an attempt that fails, ends the agent, and returns what its log says of it. */
export async function failureOf(agent: Program): Promise<Failure> {
  const { input } = await agent.waitForLog(/"uplink attempt failed"/);
  await agent.stop();
  return JSON.parse(input) as Failure;
}

/** Nobody but the proxy may read these passwords, in whatever way a proxy is told them. */
export function assertSecret(agent: Program, user: string, ...passwords: readonly string[]): void {
  const forms = (password: string) => [
    password,
    encodeURIComponent(password),
    Buffer.from(`${user}:${password}`).toString("base64"),
  ];
  for (const form of passwords.flatMap(forms)) {
    const told = agent.log.filter((line) => line.includes(form));
    assert.deepEqual(told, [], `${form} is in the log`);
  }
}
