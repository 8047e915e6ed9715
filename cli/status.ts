import { parseTarget, type Target } from "../shared/net/target.ts";
import { ConfigError } from "../shared/process/options.ts";
import { NoStatus, readStatus } from "./status-answer.ts";
import { askStatus } from "./status-ask.ts";
import { statusTable } from "./status-table.ts";

export interface StatusOptions {
  /** `host:port` of a server's admin port. */
  readonly adminAddress: string;
  /** All that the server says, instead of a table. */
  readonly json: boolean;
}

/** `culvert status`: what a running server says of its clusters and agents. Exit code 1: it could not be asked. */
export async function runStatus(
  { adminAddress: text, json }: StatusOptions,
  print: (text: string) => void = (text) => process.stdout.write(text),
): Promise<void> {
  const address = adminAddress(text);
  try {
    const said = await askStatus(address);
    print(json ? `${JSON.stringify(said, null, 2)}\n` : statusTable(readStatus(said)));
  } catch (error) {
    if (!(error instanceof NoStatus)) throw error;
    process.stderr.write(`culvert status: ${error.message}\n`);
    process.exitCode = 1;
  }
}

/** Throws a `ConfigError`. */
export function adminAddress(text: string): Target {
  try {
    return parseTarget(text);
  } catch (error) {
    const sentence = `--admin-address needs the host and port of a server's admin port, such as 127.0.0.1:8095, not "${text}"`;
    throw new ConfigError(sentence, { cause: error });
  }
}
