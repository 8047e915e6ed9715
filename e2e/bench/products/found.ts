import { accessSync, constants } from "node:fs";
import { join, resolve } from "node:path";
import { frp } from "./frp.ts";
import { konnectivity } from "./konnectivity.ts";
import type { Product } from "./product.ts";

/** The files of each peer, as its releases name them: the server's first. */
const PEERS = [
  { make: konnectivity, title: "Konnectivity", files: ["proxy-server", "proxy-agent"] },
  { make: frp, title: "frp", files: ["frps", "frpc"] },
] as const;

/** The peers whose programs are in the folder; of each other one it says in a line what is missing. */
export function peersIn(folder: string, say: (line: string) => void): Product[] {
  const found: Product[] = [];
  for (const { make, title, files } of PEERS) {
    const [server, agent] = files.map((file) => join(resolve(folder), file)) as [string, string];
    const missing = [server, agent].filter((path) => !isProgram(path));
    if (missing.length === 0) found.push(...make(server, agent));
    else say(`${title} is not measured: ${missing.join(" and ")} cannot be run`);
  }
  return found;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
