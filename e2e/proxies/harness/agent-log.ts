import assert from "node:assert/strict";
import type { Program } from "../../harness/program.ts";

export interface Failure {
  /** The sentence in the log. */
  readonly reason: string;
  /** Time before the next attempt. */
  readonly waitMs: number;
}

/** Waits for a failed attempt, stops the agent, and returns the log line of the attempt. */
export async function failureOf(agent: Program): Promise<Failure> {
  const line = await agent.waitForLog(/"uplink attempt failed"/);
  await agent.stop();
  return JSON.parse(line) as Failure;
}

/** The log must not contain these passwords in any of the forms in which a proxy gets them. */
export function assertSecret(agent: Program, user: string, ...passwords: readonly string[]): void {
  const forms = (password: string) => [
    password,
    encodeURIComponent(password),
    Buffer.from(`${user}:${password}`).toString("base64"),
  ];
  for (const form of passwords.flatMap(forms)) {
    const lines = agent.log.filter((line) => line.includes(form));
    assert.deepEqual(lines, [], `${form} is in the log`);
  }
}
