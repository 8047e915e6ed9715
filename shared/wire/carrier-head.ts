import * as z from "zod";
import { CulvertError } from "../outcomes.ts";
import { encodeHead, parseJson } from "./stream-head.ts";

/**
 * The head of a stream of kind `carrier`, by which a server carries the connection of an agent to the server that has
 * its link (docs/link-protocol.md).
 *
 * ```
 *  server ── SYN, head {"kind":"carrier","hops":1,"cluster":"blue","address":"…","port":1,"chain":[912]} ──▶ owner
 *         ◀── head {"ok":true,"agent":""}  or  {"error":"draining","detail":"…"} ──
 *         ── the certificates (DER), one behind the other; the agent's upgrade, and what follows it ──▶
 * ```
 */
export interface CarrierRequest {
  readonly cluster: string;
  /** Where the agent's connection comes from. */
  readonly address: string;
  readonly port: number;
  /** Lengths of the agent's certificate and of the intermediate ones, bytes. */
  readonly chain: readonly number[];
}

export const CARRIER_KIND = "carrier";

const MAX_HOPS = 1;

const requestSchema = z.object({
  kind: z.literal(CARRIER_KIND),
  hops: z.number().int().min(1),
  cluster: z.string().min(1).max(63),
  address: z.string().min(1).max(64),
  port: z.number().int().min(0).max(65_535),
  chain: z.array(z.number().int().min(1).max(65_535)).max(64),
});

export function encodeCarrier({ cluster, address, port, chain }: CarrierRequest): Buffer {
  return encodeHead({ kind: CARRIER_KIND, hops: MAX_HOPS, cluster, address, port, chain });
}

/** Parses a request of another server; throws a `CulvertError` that can be the answer. */
export function parseCarrier(json: Buffer): CarrierRequest {
  const request = requestSchema.safeParse(parseJson(json));
  if (!request.success) throw new CulvertError("internal", "the other server's request is malformed");
  const { hops, cluster, address, port, chain } = request.data;
  if (hops > MAX_HOPS)
    throw new CulvertError("forbidden", `a connection is carried to one other server, not by ${hops}`);
  return { cluster, address, port, chain };
}
