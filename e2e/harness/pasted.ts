import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { MAIN, RUNTIME } from "./processes.ts";
import { freePort } from "./targets/absent.ts";

// Lines of a page, as somebody pastes them into a terminal.

/** Ports that the lines name, and those that they leave to the defaults. */
const PORTS = ["8090", "8091", "8092", "8093", "8094", "8095", "8103", "8104", "8203", "8204"] as const;
const DEFAULTS =
  "--server-port 8090 --agent-port 8091 --health-port 8092 --admin-port 8095 --server-bind-address 127.0.0.1";

/** Free ports in the place of `PORTS`, and what puts them into a text. */
export async function portsHere() {
  const ports = new Map(await Promise.all(PORTS.map(async (port) => [port, String(await freePort())] as const)));
  return { ports, free: (text: string) => text.replace(/\b8\d{3}\b/g, (port) => ports.get(port as "8090") ?? port) };
}

/** The blocks of a chapter, and its lines as a script of ports that are free here, for this program. */
export async function chapterOf(page: string, title: string, culvert = `${RUNTIME} ${MAIN}`) {
  const text = readFileSync(join(ROOT, page), "utf8");
  const chapter = text.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
  // Between the fences every second part is a block, and begins with its language.
  const blocks = chapter.split(/^```/m).filter((_, index) => index % 2 === 1);
  const { ports, free } = await portsHere();
  const script = blocks
    .filter((block) => block.startsWith("sh\n"))
    .map((block) => block.slice(3))
    .join("\n")
    .replace("--clusters many/clusters.yaml", (flag) => `${flag} ${DEFAULTS}`)
    .replace("main.js status", "main.js status --admin-address 127.0.0.1:8095")
    .replaceAll("node dist/cli/main.js", culvert);

  return { blocks, free, ports, script: free(`trap 'kill $(jobs -p) 2>/dev/null' EXIT\n${script}\nwait`) };
}

/** Runs a script, and returns its stdout and then its stderr. `before` are words in front of the shell. */
export function runPasted(script: string, cwd: string, before: readonly string[] = []): Promise<string> {
  const [program = "", ...line] = [...before, "bash", "-c", script];
  return new Promise((resolve) => {
    execFile(program, line, { cwd, timeout: 60_000 }, (_error, stdout, stderr) => resolve(stdout + stderr));
  });
}
