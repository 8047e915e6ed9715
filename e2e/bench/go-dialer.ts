import { spawn } from "node:child_process";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { goProgram } from "../kubernetes/go-build.ts";
import type { DialSpec } from "./dial-spec.ts";

const SOURCE = join(ROOT, "e2e/bench/go-dialer");

/**
 * How callers connect: with a connection for each CONNECT, with konnectivity-client, or with many CONNECTs on one
 * HTTP/2 connection.
 */
export type CallerProtocol = "http1" | "grpc" | "h2";

interface Job {
  /** A CONNECT over a unix socket, or over TCP with or without mutual TLS. */
  readonly dial: DialSpec;
  readonly protocol: CallerProtocol;
  readonly what: "dials" | "down" | "up";
  /** Of dials. */
  readonly count?: number;
  readonly inFlight?: number;
  /** Of bytes. */
  readonly seconds?: number;
}

interface Result {
  readonly seconds: number;
  /** How long each dial took that succeeded, up to its 200. */
  readonly ms: readonly number[];
  readonly bytes: number;
  readonly failures: number;
  readonly firstFailure: string;
}

/** Opens connections as callers do, from a Go process of its own. */
export class GoDialer {
  readonly #binary: string;

  /** Compiled once for each state of its source, into the user's cache. */
  static async build(): Promise<GoDialer> {
    return new GoDialer(await goProgram(SOURCE));
  }

  private constructor(binary: string) {
    this.#binary = binary;
  }

  async run({ dial: { path, port, tls, connect }, ...job }: Job): Promise<Result> {
    const child = spawn(this.#binary, { stdio: ["pipe", "pipe", "inherit"] });
    child.stdin.end(JSON.stringify({ dial: { path, port, tls, connect }, ...job }));
    return (await json(child.stdout)) as Result;
  }
}
