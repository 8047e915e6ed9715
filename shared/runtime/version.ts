import { readFileSync } from "node:fs";

/** The name under which this is meant to be published: `culvert` on the public registry is another project. */
const NAME = "@culvert-gateway/culvert";

let known: string | undefined;

/** The version of package.json, which stands above `dist` as well as above the sources. */
export function version(): string {
  known ??= ["../../package.json", "../../../package.json"].map(versionIn).find((found) => found !== undefined);
  return known ?? "unknown";
}

function versionIn(path: string): string | undefined {
  try {
    const content = JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as {
      name?: unknown;
      version?: unknown;
    };
    return content.name === NAME && typeof content.version === "string" ? content.version : undefined;
  } catch {
    return undefined;
  }
}
