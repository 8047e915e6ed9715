import { z } from "zod";
import { firstIssue, schemaMessage } from "../basics/schema-errors.ts";
import { MAX_TOKEN_BYTES } from "../http/bearer.ts";
import { credentialFault } from "../outcomes.ts";
import { LinkRefused } from "../wire/handshake.ts";
import { helloSchema, welcomeSchema } from "./control.ts";

/** The first words inside inner TLS, one each way: uint16 length and JSON (design: "Handshake"). */

/** `bearer`: the token, if that is the agent's credential. `renews`: this connection proves anew whose that link is. */
const innerHelloSchema = helloSchema.omit({ resume: true }).extend({
  bearer: z.string().max(MAX_TOKEN_BYTES).optional(),
  renews: welcomeSchema.shape.link.optional(),
});
export type InnerHello = z.infer<typeof innerHelloSchema>;

/** It has no key: both ends take that from the inner TLS. */
const innerWelcomeSchema = welcomeSchema.omit({ key: true });
export type InnerWelcome = z.infer<typeof innerWelcomeSchema>;

const renewedSchema = z.object({ type: z.literal("renewed") });
export type Renewed = z.infer<typeof renewedSchema>;

const refusedSchema = z.object({
  type: z.literal("refused"),
  status: z.number().int().optional(),
  closeCode: z.number().int().optional(),
  reason: z.string().max(2_048),
  fault: z.string().max(64).optional(),
  retryAfterMs: z.number().min(0).optional(),
});
export type Refused = z.infer<typeof refusedSchema>;

const answerSchema = z.discriminatedUnion("type", [innerWelcomeSchema, renewedSchema, refusedSchema]);
export type InnerAnswer = InnerWelcome | Renewed | Refused;

const LENGTH_BYTES = 2;

export function encodeWords(words: InnerHello | InnerAnswer): Buffer {
  const json = Buffer.from(JSON.stringify(words));
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt16BE(json.length);
  return Buffer.concat([length, json]);
}

/** The JSON at the beginning of these bytes, and what is behind it; `undefined`: it is not all there yet. */
export function splitWords(bytes: Buffer): { readonly json: string; readonly rest: Buffer } | undefined {
  if (bytes.length < LENGTH_BYTES) return undefined;
  const end = LENGTH_BYTES + bytes.readUInt16BE(0);
  if (bytes.length < end) return undefined;
  return { json: bytes.toString("utf8", LENGTH_BYTES, end), rest: bytes.subarray(end) };
}

/** Throws a sentence. */
export function parseInnerHello(json: string): InnerHello {
  return parse(innerHelloSchema, json, "hello");
}

/** Throws `LinkRefused` if that is the answer, else a sentence. */
export function parseInnerAnswer(json: string): InnerWelcome | Renewed {
  const answer = parse(answerSchema, json, "answer");
  if (answer.type !== "refused") return answer;
  const { status, closeCode, reason, fault, retryAfterMs } = answer;
  throw new LinkRefused({
    ...(status !== undefined && { status }),
    ...(closeCode !== undefined && { closeCode }),
    ...{ reason, fault: credentialFault(fault), retryAfterMs },
  });
}

function parse<T>(schema: z.ZodType<T>, json: string, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new Error(`the inner ${what} is not JSON`);
  }
  const parsed = schema.safeParse(value, { error: schemaMessage });
  if (parsed.success) return parsed.data;
  throw new Error(`bad inner ${what}: ${firstIssue(parsed.error)}`);
}
