/**
 * Options of every fastify instance. Its compilers of JSON schemas are more code than the rest of it, so they are not
 * loaded: what comes in is verified by zod. A route with a JSON schema fails at the start.
 */
export const FASTIFY_OPTIONS = {
  logger: false,
  return503OnClosing: false,
  schemaController: { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } },
} as const;

function refuseSchema(): never {
  throw new Error("a route has a JSON schema, but this fastify instance has no compiler of schemas");
}
