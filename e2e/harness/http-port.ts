import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Agent } from "../../agent/agent.ts";
import type { ServerOptions } from "../../server/options/options.ts";
import { ISSUER, Issuer, SUBJECT } from "../../server/tokens/testing/tokens.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import { startClusterAgent } from "./cluster-agents.ts";
import { ClusterFolder } from "./cluster-files.ts";
import { type ClusterServer, startClusterServer } from "./cluster-server.ts";
import { started } from "./started.ts";
import { freePort } from "./targets/absent.ts";

/** A server with `--http-port` in this process, and an agent of `blue`, one of its clusters, which takes tokens. */
export class HttpPortWorld implements AsyncDisposable {
  readonly folder: ClusterFolder;
  readonly port: number;
  readonly #issuer: Issuer;
  #running: ClusterServer | undefined;
  #agent: Agent | undefined;

  private constructor(folder: ClusterFolder, port: number, issuer: Issuer) {
    this.folder = folder;
    this.port = port;
    this.#issuer = issuer;
  }

  /** `others`: more clusters, of which those in `withTokens` take tokens as well. */
  static async start({
    others = [],
    withTokens = [],
    server = {},
    log,
  }: {
    readonly others?: readonly string[];
    readonly withTokens?: readonly string[];
    readonly server?: Partial<ServerOptions>;
    readonly log?: Logger;
  } = {}): Promise<HttpPortWorld> {
    const folder = await ClusterFolder.create(["blue", ...others]);
    const world = new HttpPortWorld(folder, await freePort(), await Issuer.create());
    return started(world, async () => {
      for (const name of ["blue", ...withTokens]) await world.#takeTokens(name);
      world.#running = await startClusterServer(folder, { httpPort: world.port, agentWaitMs: 20, ...server }, log);
      await world.startAgent();
    });
  }

  async #takeTokens(name: string): Promise<void> {
    await writeFile(join(this.folder.path, "keys.jwks"), JSON.stringify(await this.#issuer.keySet()));
    const jwt = { issuer: ISSUER, audience: name, jwks: "keys.jwks", subjects: [SUBJECT] };
    await this.folder.get(name).write({ callers: { token: { jwt } } });
  }

  get server(): ClusterServer["server"] {
    return (this.#running as ClusterServer).server;
  }

  token(cluster = "blue"): Promise<string> {
    return this.#issuer.token({ aud: [cluster] });
  }

  /** `CLUSTER:TOKEN`, as it stands in a proxy's URL. */
  async login(cluster = "blue"): Promise<string> {
    return `${cluster}:${await this.token(cluster)}`;
  }

  async startAgent(): Promise<void> {
    this.#agent = await startClusterAgent(this.folder.get("blue"), this.#running?.agentPort ?? 0, {});
  }

  stopAgent(): void {
    this.#agent?.destroy(new Error("the agent is to be away"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stopAgent();
    this.#running?.[Symbol.dispose]();
    this.folder[Symbol.dispose]();
  }
}
