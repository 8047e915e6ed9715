import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { MAIN, RUNTIME } from "../../harness/processes.ts";
import { TempDir } from "../../harness/temp.ts";
import type { Render } from "./helm.ts";
import { type Container, dataOf, type EnvVar, type Pod } from "./objects.ts";
import { type Sources, writeVolumes } from "./pod-files.ts";

const SERVICES = ["server", "agent", "router"];
const MEMORY_LIMIT = "268435456";
const DEADLINE_MS = 20_000;
const CERTIFICATES = ["tls.crt", "tls.key", "ca.crt"];

/** The answer of `--print-config` to a container's own command line. */
export interface Printed {
  readonly code: number;
  /** Effective values by the options' names, as YAML has them. */
  readonly values: ReadonlyMap<string, string>;
  readonly stderr: string;
}

/** Does the container run one of our services, and not another command? */
export function isService(container: Container): boolean {
  return SERVICES.includes(argumentsOf(container)[0] ?? "");
}

/** The arguments of the entry point: the image's own, or another one that platforms name. */
function argumentsOf({ command = [], args = [] }: Container): readonly string[] {
  const [program = "culvert", ...more] = command;
  const name = basename(program);
  if (name === "proxy-server") return ["server", ...more, ...args];
  if (name === "proxy-agent") return ["agent", ...more, ...args];
  if (name === "culvert") return [...more, ...args];
  return [program, ...more, ...args];
}

/**
 * Runs a container's command line with `--print-config`, with its environment, and its volumes as files. Their paths
 * are those of a folder here, in the arguments, in the environment and in the file of options. Objects that are not
 * rendered are there, too, with as many keys as the container asks for.
 */
export async function printedConfig(render: Render, pod: Pod, container: Container): Promise<Printed> {
  using folder = new TempDir();
  const root = folder.file("root");
  writeVolumes(pod.spec, placeholders(render), folder.file("volumes"));
  const here = mountedAt(root, container, folder.file("volumes"));
  const args = argumentsOf(container).map(here);
  const env = Object.fromEntries(
    (container.env ?? []).map((variable) => [variable.name, here(environmentValue(variable))]),
  );
  return await run([...args, "--print-config"], { PATH: process.env["PATH"] ?? "", ...env });
}

/** Copies the volumes to where the container has them, below `root`; returns how a text's paths become those here. */
function mountedAt(root: string, { volumeMounts = [] }: Container, volumes: string): (text: string) => string {
  const paths = volumeMounts.map(({ mountPath }) => mountPath).toSorted((a, b) => b.length - a.length);
  const pattern = new RegExp(`(?<![\\w.-])(?:${paths.map(literally).join("|")})(?![\\w.-])`, "g");
  const here = (text: string) => (paths.length === 0 ? text : text.replaceAll(pattern, (path) => root + path));
  for (const { name, mountPath, subPath = "" } of volumeMounts) {
    copy(join(volumes, name, subPath), join(root, mountPath), here);
  }
  return here;
}

function literally(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** A file, or a folder with all that is in it. */
function copy(from: string, to: string, change: (text: string) => string): void {
  if (statSync(from).isDirectory()) {
    mkdirSync(to, { recursive: true });
    for (const name of readdirSync(from)) copy(join(from, name), join(to, name), change);
    return;
  }
  mkdirSync(dirname(to), { recursive: true });
  writeFileSync(to, change(readFileSync(from, "utf8")));
}

/** Objects that are rendered, and in place of others as many keys as anything rendered may ask for. */
function placeholders({ objects, yaml }: Render): Sources {
  const paths = [...yaml.matchAll(/\/([\w.-]+)/g)].map(([, name]) => name ?? "");
  return {
    keys: (kind, name, wanted) => {
      const object = objects.find((one) => one.kind === kind && one.metadata.name === name);
      if (object !== undefined) return dataOf(object);
      return Object.fromEntries([...CERTIFICATES, ...paths, ...wanted].map((key) => [key, "placeholder"]));
    },
    token: () => "placeholder",
  };
}

function environmentValue({ value, valueFrom }: EnvVar): string {
  if (valueFrom?.resourceFieldRef) return MEMORY_LIMIT;
  return value ?? "placeholder";
}

async function run(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Printed> {
  return await new Promise((resolve) => {
    execFile(RUNTIME, [MAIN, ...args], { env, timeout: DEADLINE_MS }, (error, stdout, stderr) => {
      const code = typeof error?.code === "number" ? error.code : Number(error !== null);
      resolve({ code, values: valuesOf(stdout), stderr });
    });
  });
}

function valuesOf(printed: string): Map<string, string> {
  const lines = printed.matchAll(/^([a-z0-9-]+): (.*) # (?:flag|environment|file|default)$/gm);
  return new Map([...lines].map(([, name = "", value = ""]) => [name, value]));
}
