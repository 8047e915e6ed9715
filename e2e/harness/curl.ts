import { execFile } from "node:child_process";
import { promisify } from "node:util";

const MAX_BYTES = 64 * 1024 * 1024;

/** The output of curl. Its proxies come from its arguments alone. Rejects, with `stderr`, where curl fails. */
export async function curl(...args: string[]): Promise<string> {
  const options = { env: { PATH: process.env["PATH"] }, encoding: "latin1", maxBuffer: MAX_BYTES } as const;
  const { stdout } = await promisify(execFile)("curl", ["-sS", "--max-time", "20", ...args], options);
  return stdout;
}
