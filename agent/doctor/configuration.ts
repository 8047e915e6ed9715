import { CredentialsFile } from "../../shared/dial/proxy-credentials.ts";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { leavesIn, withoutLeaves } from "../../shared/tls/authorities.ts";
import { type CredentialFiles, type Credentials, readCredentials } from "../uplink/credentials.ts";
import { KeptProxyTls, type ProxyFiles } from "../uplink/proxy-route.ts";
import { firstOf, linksIn } from "./certificates.ts";
import { type Finding, type Passed, StepFailed } from "./report.ts";

/** The findings about a file. */
interface FileReport {
  readonly words: string;
  readonly finding?: Finding | undefined;
}

/**
 * Reads the files of the agent. A certificate that has expired, or is not valid yet, is a finding, and the doctor goes
 * on with it: perhaps the clock is wrong, and the server knows the time. A fault of a file that only a proxy needs does
 * not end the doctor either, because the proxy may not ask for it.
 */
export async function readConfiguration(
  files: CredentialFiles & ProxyFiles,
  now = new Date(),
): Promise<Passed<Credentials>> {
  const credentials = credentialsIn(files);
  const seen = [
    ...withoutCredential(credentials),
    ...ownCertificate(credentials, files, now),
    ...ownToken(credentials, files, now),
    authorities(credentials, now),
    ...outerAuthorities(credentials),
    ...(await faultsOfProxyFiles(files)).map(unusable),
  ];
  const [finding, ...others] = seen.flatMap((one) => one.finding ?? []);
  const detail = seen.map(({ words }) => words).join("; ");
  return { value: credentials, detail, ...(finding && { finding }), ...(others.length > 0 && { others }) };
}

function credentialsIn(files: CredentialFiles): Credentials {
  try {
    return readCredentials(files);
  } catch (error) {
    const { message } = error as Error;
    throw new StepFailed({ culprit: "configuration", by: message }, message);
  }
}

/** The steps go on without one, as far as the server's answer to it. */
function withoutCredential({ cert, token }: Credentials): FileReport[] {
  if (cert !== undefined || token !== undefined) return [];
  return [{ words: "no certificate and no token", finding: { culprit: "no_credential", by: "--agent-cert" } }];
}

function ownCertificate({ cert, notAfter }: Credentials, { agentCert: by }: CredentialFiles, now: Date): FileReport[] {
  if (cert === undefined) return [];
  const { subject, validFrom, validTo } = firstOf(cert);
  // A chain ends with the first of its certificates.
  const ends = notAfter ?? new Date(validTo);
  const words = `certificate ${subject}, valid until ${ends.toISOString()}`;
  const validity = { validFrom: Date.parse(validFrom), validTo: ends.getTime() };
  if (ends <= now) return [{ words, finding: { culprit: "agent_expired", by, ...validity } }];
  if (new Date(validFrom) <= now) return [{ words }];
  return [{ words, finding: { culprit: "agent_not_yet_valid", by, ...validity } }];
}

function ownToken({ token }: Credentials, { serviceAccountTokenPath: by }: CredentialFiles, now: Date): FileReport[] {
  if (token === undefined) return [];
  const { expiresAt } = token;
  if (expiresAt === undefined) return [{ words: "token that does not say when it ends" }];
  const words = `token until ${expiresAt.toISOString()}`;
  if (expiresAt > now) return [{ words }];
  return [{ words, finding: { culprit: "token_expired", by, validTo: expiresAt.getTime() } }];
}

/** The expiry of the CAs: a CA that has expired is no fault while another one of the file is valid. */
function authorities({ ca }: Credentials, now: Date): FileReport {
  if (ca === undefined) return { words: "the CAs that Node brings" };
  const [leaf] = leavesIn(ca);
  const beside = leaf === undefined ? "" : ` ("${leaf}" in the same file is a leaf, and is not trusted)`;
  const links = linksIn([withoutLeaves(ca)]);
  const words = `server CA ${links[0]?.subject}${beside}`;
  const last = links.reduce((one, other) => (one.validTo < other.validTo ? other : one)); // ISO 8601
  const validity = { validFrom: Date.parse(last.validFrom), validTo: Date.parse(last.validTo) };
  if (validity.validTo > now.getTime()) return { words };
  const finding: Finding = { culprit: "ca_expired", by: "--ca-cert", ...validity };
  return { words: `${words}, expired on ${last.validTo}`, finding };
}

function outerAuthorities({ outerCa: [outer, ...more] = [] }: Credentials): FileReport[] {
  if (outer === undefined) return [];
  return [{ words: more.length > 0 ? "outer CAs: those that Node brings" : `outer CA ${firstOf(outer).subject}` }];
}

function unusable(sentence: string): FileReport {
  return { words: sentence, finding: { culprit: "configuration", by: sentence } };
}

/** The faults of the files for proxies, which an agent reports as soon as a proxy needs them. */
async function faultsOfProxyFiles(files: ProxyFiles): Promise<readonly string[]> {
  const { proxyCredentialsFile, proxyCa: caFile, proxyCert: certFile, proxyKey: keyFile } = files;
  const tls = new KeptProxyTls({ caFile, certFile, keyFile }, SILENT);
  const reading = [
    ...(proxyCredentialsFile === "" ? [] : [new CredentialsFile(proxyCredentialsFile).read(NEVER)]),
    (async () => tls.current())(),
  ];
  const read = await Promise.allSettled(reading);
  return read.flatMap((result) => (result.status === "rejected" ? sentenceOf(result.reason) : []));
}

function sentenceOf(fault: unknown): string {
  if (fault instanceof RouteFault) return fault.message;
  throw fault;
}

/** For what has a limit of its own. */
export const NEVER = new AbortController().signal;
/** For what an agent would log: the steps have it. */
export const SILENT = createLogger({
  level: "silent",
  format: "json",
  name: "doctor",
  destination: { write: () => {} },
});
