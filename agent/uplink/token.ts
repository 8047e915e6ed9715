import { readBoundedSync } from "../../shared/documents/read-bounded.ts";
import { readFailure } from "../../shared/documents/read-failure.ts";
import { unfitToken, unverifiedClaims } from "../../shared/http/bearer.ts";

/** A bearer token, and when it ends, if it says so. */
export interface AgentToken {
  readonly text: string;
  readonly expiresAt: Date | undefined;
  readonly issuedAt?: Date | undefined;
}

/** Reads the token that Kubernetes puts into the file, and replaces there before it ends. Throws a sentence without it. */
export function readToken(path: string): AgentToken {
  const text = readText(path).trim();
  const unfit = unfitToken(text);
  if (unfit !== undefined) throw new Error(`the token in ${path} ${unfit}`);
  const claims = unverifiedClaims(text);
  return { text, expiresAt: claims?.expiresAt, issuedAt: claims?.issuedAt };
}

function readText(path: string): string {
  try {
    return readBoundedSync(path).toString("utf8");
  } catch (error) {
    throw new Error(`the token ${path} cannot be read: ${readFailure(error)}`, { cause: error });
  }
}
