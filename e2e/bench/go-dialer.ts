import { spawn } from "node:child_process";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { goProgram } from "../kubernetes/go-build.ts";
import type { DialSpec } from "./dial-spec.ts";

const SOURCE = join(ROOT, "e2e/bench/go-dialer");

interface Dials {
  /** A CONNECT over a unix socket, or over TCP with or without mutual TLS. */
  readonly dial: DialSpec;
  readonly count: number;
  readonly inFlight: number;
}

interface DialsResult {
  readonly seconds: number;
  /** How long each dial took that succeeded, up to its 200. */
  readonly ms: readonly number[];
  readonly failures: number;
  readonly firstFailure: string;
}

/** Opens connections as kube-apiserver does, from a Go process of its own. */
export class GoDialer {
  readonly #binary: string;

  /** Compiled once for each state of its source, into the user's cache. */
  static async build(): Promise<GoDialer> {
    return new GoDialer(await goProgram(SOURCE));
  }

  private constructor(binary: string) {
    this.#binary = binary;
  }

  async run({ dial: { path, port, tls, connect }, ...job }: Dials): Promise<DialsResult> {
    const child = spawn(this.#binary, { stdio: ["pipe", "pipe", "inherit"] });
    child.stdin.end(JSON.stringify({ dial: { path, port, tls, connect }, ...job }));
    return (await json(child.stdout)) as DialsResult;
  }
}
