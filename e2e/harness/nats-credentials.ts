import { createHash } from "node:crypto";
import { nkeys } from "@nats-io/transport-node";

type KeyPair = ReturnType<typeof nkeys.createUser>;

/** The trust of a NATS with its own operator, and a `.creds` file of one of its users. */
interface NatsOperator {
  /** Lines of a server's configuration. */
  readonly config: string;
  readonly creds: string;
}

/** An operator, an account and a user, as `nsc` makes them (JWT of NATS, version 2). */
export function natsOperator(): NatsOperator {
  const [operator, account, user] = [nkeys.createOperator(), nkeys.createAccount(), nkeys.createUser()];
  const operatorJwt = jwt(operator, operator, "fleet", { type: "operator" });
  const accountJwt = jwt(operator, account, "fleet", { type: "account", limits: UNLIMITED });
  const userJwt = jwt(account, user, "culvert", { type: "user", subs: -1, data: -1, payload: -1 });
  const seed = Buffer.from(user.getSeed()).toString();
  return {
    config: `operator: ${operatorJwt}\nresolver: MEMORY\nresolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
    creds: `${block("NATS USER JWT", userJwt)}\n${block("USER NKEY SEED", seed)}`,
  };
}

const UNLIMITED = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };

function jwt(issuer: KeyPair, subject: KeyPair, name: string, nats: object): string {
  const claims = {
    ...{ jti: createHash("sha256").update(subject.getPublicKey()).digest("hex"), iat: Math.floor(Date.now() / 1_000) },
    ...{ iss: issuer.getPublicKey(), sub: subject.getPublicKey(), name, nats: { ...nats, version: 2 } },
  };
  const parts = [{ typ: "JWT", alg: "ed25519-nkey" }, claims].map((part) => base64url(JSON.stringify(part)));
  const signed = parts.join(".");
  return `${signed}.${base64url(issuer.sign(Buffer.from(signed)))}`;
}

function base64url(bytes: string | Uint8Array): string {
  return Buffer.from(bytes).toString("base64url");
}

function block(name: string, content: string): string {
  return `-----BEGIN ${name}-----\n${content}\n------END ${name}------\n`;
}
