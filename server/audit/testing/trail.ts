import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv } from "ajv";
import { ROOT } from "../../../shared/runtime/testing/project.ts";

/** One line of an audit trail. */
export type AuditLine = Readonly<Record<string, unknown>> & {
  readonly event: "decision" | "end" | "gap";
  readonly id: string;
  readonly kind: string;
};

const schema = JSON.parse(readFileSync(join(ROOT, "docs/audit.schema.json"), "utf8"));
const isLine = new Ajv({ allErrors: true, allowUnionTypes: true }).compile(schema);

/** The lines of a trail, each of which fits the schema of docs/audit.md. */
export function auditLines(text: string): AuditLine[] {
  assert.ok(text === "" || text.endsWith("\n"), "the last line is whole");
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => {
      const read = JSON.parse(line);
      assert.ok(isLine(read), `${line}\n${JSON.stringify(isLine.errors)}`);
      assert.ok(Buffer.byteLength(line) < 4_096, "a pipe takes it whole");
      return read as AuditLine;
    });
}

export function auditFile(path: string): AuditLine[] {
  return auditLines(readFileSync(path, "utf8"));
}
