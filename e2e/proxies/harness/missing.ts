import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";

const FOLDERS = (process.env["PATH"] ?? "").split(delimiter);

/** Why these programs cannot run here in network namespaces. On CI a missing program is a failure. */
export function missing(...programs: readonly string[]): string | false {
  return failOnCi(whatIsMissing(["ip", "nft", "ss", "curl", ...programs]));
}

/** Why this program cannot run here; it needs no namespace. */
export function missingProgram(program: string): string | false {
  return failOnCi(isInstalled(program) ? false : `there is no ${program}`);
}

/** Debian's, for which its packages are. */
export const PYTHON = "/usr/bin/python3";

/** Why these modules of Python cannot be used here. */
export function missingPython(...modules: readonly string[]): string | false {
  const { status } = spawnSync(PYTHON, ["-c", `import ${modules.join(", ")}`]);
  return failOnCi(status === 0 ? false : `Python's ${modules.join(" and ")} are not installed`);
}

/** Why there can be no TUN devices here. */
export function missingTun(): string | false {
  return failOnCi(existsSync("/dev/net/tun") ? false : "there is no /dev/net/tun");
}

/** Why this optional package cannot be used here. */
export function missingPackage(name: string): string | false {
  try {
    createRequire(import.meta.url).resolve(name);
    return false;
  } catch {
    return failOnCi(`the package ${name} is not installed (.ci/run shows how)`);
  }
}

function failOnCi(reason: string | false): string | false {
  if (reason !== false && process.env["CI"] === "true") throw new Error(`CI may not skip this: ${reason}`);
  return reason;
}

function whatIsMissing(programs: readonly string[]): string | false {
  if (process.platform !== "linux") return "network namespaces are Linux'";
  if (process.getuid?.() !== 0) return "network namespaces need root";
  const absent = programs.find((program) => !isInstalled(program));
  if (absent !== undefined) return `there is no ${absent}`;
  // The root user of a container may lack the permission.
  return spawnSync("unshare", ["--net", "true"]).status === 0 ? false : "this machine makes no network namespaces";
}

function isInstalled(program: string): boolean {
  return FOLDERS.some((folder) => existsSync(join(folder, program)));
}
