import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { ISSUER, Issuer, SUBJECT } from "../../../server/tokens/testing/tokens.ts";
import { NAMES } from "./addresses.ts";

/** The credentials of agents, as flags. */
export interface Identities {
  readonly certificate: readonly string[];
  readonly token: readonly string[];
}

/**
 * Writes the document of a cluster whose agents have a certificate or a token, into a folder for `--clusters` beside
 * the files of `culvert pki`.
 */
export async function writeCluster(pki: string, folder: string, uds: string): Promise<Identities> {
  const issuer = await Issuer.create();
  mkdirSync(folder);
  const written = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const jwks = written("issuer.jwks", JSON.stringify(await issuer.keySet()));
  const pair = { cert: join(pki, "cluster.crt"), key: join(pki, "cluster.key"), ca: join(pki, "cluster-ca.crt") };
  const agents = {
    sni: [NAMES.server, NAMES.serverKnownInside],
    ...pair,
    identities: ["CN=culvert-agent"],
    token: { jwt: { issuer: ISSUER, audience: "culvert", jwks, subjects: [SUBJECT] } },
  };
  written("blue.yaml", stringify({ name: "blue", agents, callers: { uds } }));
  const token = written("token", await issuer.token());
  return {
    certificate: [`--agent-cert=${join(pki, "agent.crt")}`, `--agent-key=${join(pki, "agent.key")}`],
    token: [`--service-account-token-path=${token}`],
  };
}
