import * as z from "zod";
import { clusterDocument } from "../../server/clusters/document.ts";
import type { Schema } from "./values-file.ts";

/** YAML in values.yaml has numbers and switches where the server reads text. */
const SCALAR = ["string", "number", "boolean"];

/**
 * Schema of `clusters.documents`: cluster documents by name. It knows the keys and which of them are lists; values are
 * checked when the server reads them.
 */
export function clusterDocumentsSchema(): Schema {
  const schema = z.toJSONSchema(clusterDocument, {
    target: "draft-7",
    io: "input",
    override: ({ jsonSchema }) => {
      if (jsonSchema.type !== "string") return;
      // The pattern of the texts has escapes that helm's regular expressions do not have.
      delete jsonSchema.pattern;
      Object.assign(jsonSchema, { type: SCALAR });
    },
  });
  const { $schema: _, required: __, ...document } = schema; // the key in the map is the name
  return { type: "object", additionalProperties: document };
}
