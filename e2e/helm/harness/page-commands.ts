import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../../shared/runtime/testing/project.ts";

const PAGES = join(ROOT, "docs/platforms");

/** The first commands of a step in a page of docs/platforms, such as those below `## 1. The server`, for a shell. */
export function commandsOfStep(page: string, step: number): string {
  const text = readFileSync(join(PAGES, page), "utf8");
  const [, commands] =
    new RegExp(`^## ${step}\\. (?:(?!^#|^\`\`\`)[^])*^\`\`\`sh\\n([^]*?)^\`\`\``, "m").exec(text) ?? [];
  if (commands === undefined) throw new Error(`${page} has no commands in step ${step}`);
  return commands;
}
