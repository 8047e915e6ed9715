import { type CredentialFiles, type Credentials, readCredentials } from "../uplink/credentials.ts";
import { firstOf } from "./certificates.ts";
import { type Finding, type Passed, StepFailed } from "./steps.ts";

/**
 * Our own files. What is out of its time is found, and shown to the server all the same: it may be the clock that is wrong,
 * and the server knows the time.
 */
export function readConfiguration(files: CredentialFiles, now = new Date()): Passed<Credentials> {
  const credentials = credentialsIn(files);
  const words: string[] = [];
  let finding: Finding | undefined;
  if (credentials.cert !== undefined) {
    const { subject, validFrom, validTo } = firstOf(credentials.cert);
    // A chain ends with the first of its certificates.
    const ends = credentials.notAfter ?? new Date(validTo);
    const validity = { validFrom: Date.parse(validFrom), validTo: ends.getTime() };
    words.push(`certificate ${subject}, valid until ${ends.toISOString()}`);
    if (ends <= now) finding = { culprit: "agent_expired", by: files.agentCert, ...validity };
    else if (new Date(validFrom) > now) finding = { culprit: "agent_not_yet_valid", by: files.agentCert, ...validity };
  }
  if (credentials.token !== undefined) {
    const { expiresAt } = credentials.token;
    words.push(
      `token ${expiresAt === undefined ? "that does not say when it ends" : `until ${expiresAt.toISOString()}`}`,
    );
    if (expiresAt !== undefined && expiresAt <= now) {
      finding ??= { culprit: "token_expired", by: files.serviceAccountTokenPath, validTo: expiresAt.getTime() };
    }
  }
  words.push(
    credentials.ca === undefined ? "the CAs that Node brings" : `server CA ${firstOf(credentials.ca).subject}`,
  );
  const { outerCa: [outer, ...more] = [] } = credentials;
  if (outer !== undefined) {
    words.push(more.length > 0 ? "outer CAs: those that Node brings" : `outer CA ${firstOf(outer).subject}`);
  }
  return { value: credentials, detail: words.join("; "), ...(finding && { finding }) };
}

function credentialsIn(files: CredentialFiles): Credentials {
  try {
    return readCredentials(files);
  } catch (error) {
    const { message } = error as Error;
    throw new StepFailed({ culprit: "configuration", by: message }, message, { cause: error });
  }
}
