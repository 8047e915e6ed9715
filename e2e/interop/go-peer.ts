import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Duplex } from "node:stream";
import { promisify } from "node:util";
import { ROOT } from "../../shared/runtime/testing/project.ts";

const SOURCE_FILES = ["go.mod", "go.sum", "main.go"];

/** Why the tests against Go cannot run here; never on CI, where a missing compiler is a failure. */
export const goMissing: string | undefined = await whyNoGo();

async function whyNoGo(): Promise<string | undefined> {
  try {
    await promisify(execFile)("go", ["version"]);
    return undefined;
  } catch (error) {
    if (process.env["CI"] === "true") throw new Error("Go is needed for the interop tests on CI", { cause: error });
    return "Go is not installed, so the peers in Go were not tried";
  }
}

/** Folders beside this file: of yamux, gRPC, HTTP/2, konnectivity-client, OTLP and proxies. */
type Peer = "go" | "go-grpc" | "go-http2" | "go-konnectivity-client" | "go-otlp" | "go-proxies";

const building = new Map<Peer, Promise<string>>();

/** The compiled peer, built once for each state of its sources into the user's cache. */
export function goPeerBinary(peer: Peer = "go"): Promise<string> {
  const begun = building.get(peer) ?? build(peer);
  building.set(peer, begun);
  return begun;
}

async function build(peer: Peer): Promise<string> {
  const source = join(ROOT, "e2e/interop", peer);
  const hash = createHash("sha256");
  for (const name of SOURCE_FILES) hash.update(readFileSync(join(source, name)));
  const cache = join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "culvert");
  const binary = join(cache, `interop-peer-${hash.digest("hex").slice(0, 16)}`);
  if (existsSync(binary)) return binary;
  mkdirSync(cache, { recursive: true });
  const unfinished = `${binary}.${process.pid}`;
  await promisify(execFile)("go", ["build", "-o", unfinished, "."], { cwd: source });
  renameSync(unfinished, binary);
  return binary;
}

export type Role = "client" | "server";

/** A Go process with one session on its stdin and stdout. */
export async function spawnOnPipe(role: Role, ...flags: string[]): Promise<Duplex> {
  const child = spawn(await goPeerBinary(), ["-mode", "stdio", "-role", role, ...flags], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const duplex = Duplex.from({ readable: child.stdout, writable: child.stdin });
  duplex.on("close", () => child.kill());
  return duplex;
}

/** Lets a Go process dial a WebSocket here; it ends with its session. */
export async function spawnDialler(role: Role, url: string): Promise<void> {
  spawn(await goPeerBinary(), ["-mode", "dial", "-role", role, "-url", url], { stdio: ["pipe", "ignore", "inherit"] });
}

/** A Go process that takes sessions over TCP, a port for each role, and over WebSocket, a path for each role. */
export class GoListener implements Disposable {
  readonly tcpPort: Readonly<Record<Role, number>>;
  readonly webSocketPort: number;
  readonly #kill: () => void;

  static async start(): Promise<GoListener> {
    const child = spawn(await goPeerBinary(), ["-mode", "listen"], { stdio: ["pipe", "pipe", "inherit"] });
    const [line] = (await once(createInterface(child.stdout), "line")) as [string];
    const ports = line.split(" ").map((address) => Number(address.split(":").at(-1)));
    return new GoListener(ports as [number, number, number], () => child.kill());
  }

  private constructor([server, client, webSocket]: [number, number, number], kill: () => void) {
    this.tcpPort = { server, client };
    this.webSocketPort = webSocket;
    this.#kill = kill;
  }

  [Symbol.dispose](): void {
    this.#kill();
  }
}
