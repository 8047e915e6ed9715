/**
 * Options of a fastify instance whose routes have no JSON schemas. It would load its own compilers of schemas
 * otherwise, which are more code than the rest of it. Here a route with a schema fails at the start.
 */
export const WITHOUT_SCHEMAS = {
  schemaController: { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } },
} as const;

function refuseSchema(): never {
  throw new Error("a route has a JSON schema, but this fastify instance has no compiler of schemas");
}
