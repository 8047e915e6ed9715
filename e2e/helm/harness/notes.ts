import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CHARTS, type Chart, type Render } from "./helm.ts";
import { dataOf } from "./objects.ts";

/** The name of a ConfigMap. */
const NOTES = "notes";

/**
 * Writes a copy of a chart that renders its notes into a ConfigMap, since `helm template` prints none; returns its
 * folder.
 */
export function withNotes(chart: Chart, parent: string): string {
  const folder = join(parent, chart);
  cpSync(join(CHARTS, chart), folder, { recursive: true });
  const notes = readFileSync(join(folder, "templates/NOTES.txt"), "utf8");
  writeFileSync(join(folder, "templates/_notes.tpl"), `{{- define "notes" -}}\n${notes}\n{{- end -}}\n`);
  const text = `{{ include "notes" . | toJson }}`;
  const object = `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${NOTES}\ndata:\n  text: ${text}\n`;
  writeFileSync(join(folder, "templates/notes.yaml"), object);
  return folder;
}

/** The notes that helm would print. */
export function notesOf({ objects }: Render): string {
  const found = objects.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === NOTES);
  const text = found && dataOf(found)["text"];
  if (text === undefined) throw new Error("the chart renders no notes");
  return text;
}
