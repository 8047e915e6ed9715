/**
 * Options of every fastify instance. Its compilers of JSON schemas are more code than the rest of it, so they are not
 * loaded: what comes in is verified by zod. An instance without a validator of its own has no routes with schemas.
 */
export const FASTIFY_OPTIONS = {
  logger: false,
  return503OnClosing: false,
  schemaController: { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } },
} as const;

function refuseSchema(): never {
  throw new Error("a route has a JSON schema, but this fastify instance has no compiler of schemas");
}
