import { spawn } from "node:child_process";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { goProgram } from "../kubernetes/go-build.ts";
import type { DialSpec } from "./dial-spec.ts";

const SOURCE = join(ROOT, "e2e/bench/go-http2");

/** How callers over HTTP/2 connect: with konnectivity-client, or with CONNECT on one connection. */
export type Http2Protocol = "grpc" | "h2";

interface Http2Job {
  readonly dial: DialSpec;
  readonly protocol: Http2Protocol;
  readonly what: "dials" | "down" | "up";
  /** Of dials. */
  readonly count?: number;
  readonly inFlight?: number;
  /** Of bytes. */
  readonly seconds?: number;
}

interface Http2Result {
  readonly seconds: number;
  /** How long each dial took that succeeded. */
  readonly ms: readonly number[];
  readonly bytes: number;
  readonly failures: number;
  readonly firstFailure: string;
}

/** Callers over HTTP/2, in a Go process of their own. */
export class GoHttp2 {
  readonly #binary: string;

  /** Compiled once for each state of its source, into the user's cache. */
  static async build(): Promise<GoHttp2> {
    return new GoHttp2(await goProgram(SOURCE));
  }

  private constructor(binary: string) {
    this.#binary = binary;
  }

  async run({ dial: { path, port, tls, connect }, ...job }: Http2Job): Promise<Http2Result> {
    const child = spawn(this.#binary, { stdio: ["pipe", "pipe", "inherit"] });
    child.stdin.end(JSON.stringify({ dial: { path, port, tls, connect }, ...job }));
    return (await json(child.stdout)) as Http2Result;
  }
}
