import { closeSync, openSync, readSync } from "node:fs";
import { MAX_TOKEN_BYTES, unfitToken, unverifiedClaims } from "../../shared/net/bearer.ts";
import { readFailure } from "../../shared/net/read-failure.ts";

/** A bearer token, and when it ends, if it says so. */
export interface AgentToken {
  readonly text: string;
  readonly expiresAt: Date | undefined;
  readonly issuedAt?: Date | undefined;
}

/** Reads the token that Kubernetes puts into the file, and replaces there before it ends. Throws a sentence without it. */
export function readToken(path: string): AgentToken {
  const text = readBounded(path).trim();
  const unfit = unfitToken(text);
  if (unfit !== undefined) throw new Error(`the token in ${path} ${unfit}`);
  const claims = unverifiedClaims(text);
  return { text, expiresAt: claims?.expiresAt, issuedAt: claims?.issuedAt };
}

/** Not more than a token and a line break; a wrong path may lead to anything. */
function readBounded(path: string): string {
  const room = Buffer.alloc(MAX_TOKEN_BYTES + 2);
  try {
    const file = openSync(path, "r");
    try {
      return room.toString("utf8", 0, readSync(file, room));
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new Error(`the token ${path} cannot be read: ${readFailure(error)}`, { cause: error });
  }
}
