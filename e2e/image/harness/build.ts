import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, cpSync, existsSync, lstatSync, mkdirSync, readdirSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import {
  type Arg,
  type Copy,
  DockerfileParser,
  type From,
  type Instruction,
  type JSONInstruction,
  type PropertyInstruction,
} from "dockerfile-ast";
import type { Mount } from "../../harness/machine-root.ts";
import { Root } from "./root.ts";

/** The result of a build: the root of the last stage, and the start of its containers. */
export interface Image {
  readonly root: Root;
  readonly base: string;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly folder: string;
  readonly user: string;
  readonly ports: readonly string[];
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
}

interface BuildOptions {
  readonly dockerfile: string;
  /** The stage to build (`docker build --target`), or else the last one. */
  readonly target?: string;
  /** Folder with what is sent to the builder. */
  readonly context: string;
  /** Folder for the roots of the stages. */
  readonly stages: string;
  readonly buildArgs: Readonly<Record<string, string>>;
  /** Variables of RUN beside those of the file: they say how this machine reaches its package registry. */
  readonly env: Readonly<Record<string, string>>;
  /** The folder that a cache mount with this target shows. */
  readonly caches: Readonly<Record<string, string>>;
}

/** Runs the steps of a Dockerfile, and no others: an instruction or a flag that is not known here is an error. */
export async function buildImage(options: BuildOptions): Promise<Image> {
  const build = new Build(options);
  const all = DockerfileParser.parse(options.dockerfile).getInstructions();
  for (const instruction of withoutOtherStages(all, options.target)) await build.step(instruction);
  return build.image;
}

/** Like BuildKit, it leaves out each stage that neither is built nor is copied from. */
function withoutOtherStages(all: readonly Instruction[], target?: string): Instruction[] {
  const starts = all.flatMap((instruction, at) => (instruction.getKeyword() === "FROM" ? [at] : []));
  const stages = starts.map((at, index) => all.slice(at, starts[index + 1]));
  const nameOf = (stage: readonly Instruction[]) => (stage[0] as From).getBuildStage() ?? "";
  const wanted = target === undefined ? stages.at(-1) : stages.find((stage) => nameOf(stage) === target);
  const copies = (wanted ?? []).filter((instruction) => instruction.getKeyword() === "COPY") as Copy[];
  const sources = copies.flatMap((copy) => copy.getFromFlag()?.getValue() ?? []);
  const needed = stages.filter((stage) => stage === wanted || sources.includes(nameOf(stage)));
  return [...all.slice(0, starts[0]), ...needed.flat()];
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
interface Stage extends Mutable<Image> {
  /** Values of ARG, which no container sees. */
  readonly args: Record<string, string>;
  env: Record<string, string>;
  labels: Record<string, string>;
}

class Build {
  readonly #options: BuildOptions;
  readonly #globalArgs: Record<string, string> = {};
  readonly #stages = new Map<string, Stage>();
  #stage: Stage | undefined;

  constructor(options: BuildOptions) {
    this.#options = options;
  }

  get image(): Stage {
    if (this.#stage === undefined) throw new Error("there is no FROM in front of this instruction");
    return this.#stage;
  }

  async step(instruction: Instruction): Promise<void> {
    const words = () => instruction.getArguments().map((argument) => this.#expanded(argument.getValue()));
    switch (instruction.getKeyword()) {
      case "ARG":
        return this.#arg(instruction as Arg);
      case "FROM":
        return this.#from(instruction as From);
      case "ENV":
        return void Object.assign(this.image.env, this.#properties(instruction as PropertyInstruction));
      case "LABEL":
        return void Object.assign(this.image.labels, this.#properties(instruction as PropertyInstruction));
      case "WORKDIR":
        this.image.folder = resolve(this.image.folder, words()[0] ?? "");
        return void mkdirSync(this.image.root.at(this.image.folder), { recursive: true });
      case "COPY":
        return this.#copy(instruction as Copy);
      case "RUN":
        return this.#run(instruction as JSONInstruction);
      case "USER":
        this.image.user = words()[0] ?? "";
        return;
      case "EXPOSE":
        this.image.ports = words();
        return;
      case "ENTRYPOINT":
        this.image.entrypoint = jsonWords(instruction as JSONInstruction);
        return;
      case "CMD":
        this.image.command = jsonWords(instruction as JSONInstruction);
        return;
      default:
        throw new Error(`this builder does not know ${instruction.getKeyword()}`);
    }
  }

  #arg(instruction: Arg): void {
    const property = instruction.getProperty();
    const name = property?.getName() ?? "";
    const value = this.#options.buildArgs[name] ?? property?.getValue() ?? this.#globalArgs[name];
    if (value !== undefined) (this.#stage?.args ?? this.#globalArgs)[name] = this.#expanded(value);
  }

  #from(instruction: From): void {
    this.#stage = undefined; // no variable of a stage means anything here
    const base = this.#expanded(instruction.getImage() ?? "");
    const name = instruction.getBuildStage() ?? String(this.#stages.size);
    const root = new Root(join(this.#options.stages, name));
    const started = { folder: "/", user: "", ports: [], entrypoint: [], command: [] };
    this.#stage = { root, base, args: {}, env: {}, labels: {}, ...started };
    this.#stages.set(name, this.#stage);
  }

  #copy(instruction: Copy): void {
    const flags = new Map(instruction.getFlags().map((flag) => [flag.getName(), flag.getValue() ?? ""]));
    const { from, chmod, ...unknown } = Object.fromEntries(flags);
    if (Object.keys(unknown).length > 0) throw new Error(`this builder does not know COPY --${Object.keys(unknown)}`);
    const origin = from === undefined ? this.#options.context : this.#stages.get(from)?.root.path;
    if (origin === undefined) throw new Error(`COPY --from=${from}: there is no such stage`);
    const words = instruction.getArguments().map((argument) => this.#expanded(argument.getValue()));
    const to = words.pop() ?? "";
    const { root, folder } = this.image;
    const destination = root.at(resolve(folder, to));
    for (const source of words) {
      const path = join(origin, source);
      if (!existsSync(path)) throw new Error(`COPY ${source}: it is not there, or .dockerignore keeps it back`);
      // Of a folder its content is copied.
      const isInside = !lstatSync(path).isDirectory() && (to.endsWith("/") || words.length > 1);
      const target = isInside ? join(destination, basename(source)) : destination;
      cpSync(path, target, { recursive: true });
      if (chmod !== undefined) changeMode(target, Number.parseInt(chmod, 8));
    }
  }

  async #run(instruction: JSONInstruction): Promise<void> {
    const mounts = instruction.getFlags().map((flag): Mount => {
      const type = flag.getOption("type")?.getValue();
      const at = flag.getOption("target")?.getValue() ?? "";
      const from = type === "cache" ? this.#options.caches[at] : undefined;
      if (from === undefined) throw new Error(`this builder does not know RUN ${flag}`);
      return { from, at };
    });
    const { root, folder, args, env, user } = this.image;
    const command = instruction.getArgumentsContent() ?? "";
    const [program = "", ...line] = root.commandLine({
      argv: ["/bin/sh", "-c", command],
      env: { ...this.#options.env, ...args, ...env },
      folder,
      mounts,
      ...(user !== "" && { owner: user }),
    });
    const child = spawn(program, line, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += String(chunk)));
    const [code] = await once(child, "close");
    if (code !== 0) throw new Error(`RUN ${command} ended with ${code}:\n${output}`);
  }

  #properties(instruction: PropertyInstruction): Record<string, string> {
    const entries = instruction.getProperties().map((one) => [one.getName(), this.#expanded(one.getValue() ?? "")]);
    return Object.fromEntries(entries) as Record<string, string>;
  }

  #expanded(text: string): string {
    const known = { ...(this.#stage === undefined ? this.#globalArgs : this.#stage.args), ...this.#stage?.env };
    return text.replace(/\$\{(\w+)\}|\$(\w+)/g, (_whole, braced: string, bare: string) => known[braced ?? bare] ?? "");
  }
}

function jsonWords(instruction: JSONInstruction): string[] {
  const words = instruction.getJSONStrings().map((word) => word.getJSONValue());
  if (words.length === 0)
    throw new Error(`${instruction.getKeyword()} is no JSON array: a shell would keep the signals`);
  return words;
}

function changeMode(path: string, mode: number): void {
  chmodSync(path, mode);
  if (!lstatSync(path).isDirectory()) return;
  for (const name of readdirSync(path)) changeMode(join(path, name), mode);
}
