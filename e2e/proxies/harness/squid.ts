import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { TempDir } from "../../harness/temp.ts";
import { waitFor } from "../../harness/wait.ts";
import type { Namespace } from "../../kubernetes/world/namespace.ts";
import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";

/** Debian's folder of squid's authentication helpers. */
const HELPERS = "/usr/lib/squid";
const REALM = "Corporate proxy";

/** A user of the proxy, and how that user authenticates. */
export type SquidAuth =
  | { readonly scheme: "basic" | "digest"; readonly user: string; readonly password: string }
  | { readonly scheme: "negotiate"; readonly principal: string; readonly keytab: string; readonly env: SquidEnv };
type SquidEnv = Readonly<Record<string, string>>;

/** Where a squid runs, and the name or address that its clients know. */
interface SquidPlace {
  readonly where: Namespace;
  readonly address: string;
  readonly name: string;
}

interface SquidOptions {
  /** It takes requests for whole URLs, too, and all ports. */
  readonly takesAll?: boolean;
  /** It closes the connection after each answer of its own. */
  readonly closes?: boolean;
  /** It refuses requests without credentials by a plain 403, and asks for none. */
  readonly asksNobody?: boolean;
  /** Offered in this order. Without any, no login is needed. */
  readonly auth?: readonly SquidAuth[];
  /** TLS to the proxy itself, on `PORTS.https`. With `clientCa` clients need a certificate of that CA (all PEM). */
  readonly tls?: { readonly cert: string; readonly key: string; readonly clientCa?: string };
}

/** A request in squid's log. A tunnel is logged when it ends. */
interface SquidRequest {
  readonly status: number;
  /** `-` if there was no login. */
  readonly user: string;
  readonly method: string;
  readonly target: string;
  /** The scheme of the credentials; `-` if none were sent. */
  readonly scheme: string;
}

/** A squid with Debian's program and a minimal configuration. */
export class Squid implements AsyncDisposable {
  readonly url: string;
  readonly #dir: TempDir;
  readonly #service: Service;

  private constructor(dir: TempDir, service: Service, url: string) {
    this.#dir = dir;
    this.#service = service;
    this.url = url;
  }

  /** At the border of the company's network. */
  static start({ outside }: CorporateNetwork, options: SquidOptions = {}): Promise<Squid> {
    return Squid.startAt({ where: outside, address: BORDER, name: NAMES.proxy }, options);
  }

  static async startAt({ where, address, name }: SquidPlace, options: SquidOptions): Promise<Squid> {
    const dir = new TempDir();
    // squid drops root's privileges.
    chmodSync(dir.path, 0o755);
    mkdirSync(dir.file("logs"));
    chmodSync(dir.file("logs"), 0o777);
    const { auth = [], tls } = options;
    for (const one of auth) if (one.scheme !== "negotiate") writePassword(dir.path, one);
    writeFileSync(dir.file("squid.conf"), configuration(dir.path, address, options));
    const port = tls ? PORTS.https : PORTS.http;
    const argv = ["squid", "-N", "-d", "1", "-f", dir.file("squid.conf")];
    const env = Object.assign({}, ...auth.map((one) => (one.scheme === "negotiate" ? one.env : {})));
    const service = await Service.start(where, { name: "squid", argv, port, env, dir });
    return new Squid(dir, service, `${tls ? "https" : "http"}://${name}:${port}`);
  }

  /** All requests, in the order in which they ended. */
  requests(): SquidRequest[] {
    const file = this.#dir.file("logs/access");
    const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean) : [];
    return lines.map((line) => {
      const [status = "", user = "", method = "", target = "", scheme = ""] = line.split(" ");
      // The space after the scheme is percent-encoded.
      return { status: Number(status), user, method, target, scheme: scheme.split("%")[0] as string };
    });
  }

  async waitForRequest(like: Partial<SquidRequest>): Promise<SquidRequest> {
    const wanted = Object.entries(like);
    const found = () =>
      this.requests().find((request) => wanted.every(([key, value]) => request[key as never] === value));
    return await waitFor(found, { what: `${JSON.stringify(like)} in squid's log` });
  }

  /** Drops all tunnels and starts again, with another password if one is given. */
  async restart(auth?: Extract<SquidAuth, { password: string }>): Promise<void> {
    await this.#service.kill();
    if (auth) writePassword(this.#dir.path, auth);
    await this.#service.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#service[Symbol.asyncDispose]();
  }
}

function configuration(dir: string, address: string, options: SquidOptions): string {
  const { auth = [], tls, closes = false, asksNobody = false, takesAll = false } = options;
  // CONNECT to 443 only, as in Debian's own configuration.
  const connectOnly = ["acl CONNECT method CONNECT", "acl ports port 443", "http_access deny !ports"];
  return [
    tls ? tlsPort(dir, address, tls) : `http_port ${address}:${PORTS.http}`,
    ...auth.map((one) => parametersOf(dir, one)),
    `client_persistent_connections ${closes ? "off" : "on"}`,
    ...(takesAll ? [] : [...connectOnly, "http_access deny !CONNECT"]),
    ...(asksNobody ? ["acl shown req_header Proxy-Authorization .", "http_access deny !shown"] : []),
    ...(auth.length > 0 ? ["acl known proxy_auth REQUIRED", "http_access deny !known"] : []),
    "http_access allow all",
    "logformat short %>Hs %un %rm %ru %{Proxy-Authorization}>h",
    `access_log stdio:${dir}/logs/access logformat=short`,
    `cache_log ${dir}/logs/cache`,
    "cache deny all",
    "cache_mem 1 MB",
    "memory_cache_shared off",
    "pid_filename none",
    "netdb_filename none",
    "pinger_enable off",
    "shutdown_lifetime 0 seconds",
    `visible_hostname ${NAMES.proxy}`,
    "",
  ].join("\n");
}

function tlsPort(dir: string, address: string, { cert, key, clientCa }: NonNullable<SquidOptions["tls"]>): string {
  writeFileSync(join(dir, "tls.pem"), cert + key);
  if (clientCa) writeFileSync(join(dir, "client-ca.pem"), clientCa);
  const clients = clientCa ? ` tls-clientca=${join(dir, "client-ca.pem")}` : "";
  return `https_port ${address}:${PORTS.https} tls-cert=${join(dir, "tls.pem")}${clients}`;
}

function parametersOf(dir: string, auth: SquidAuth): string {
  const helpers = `auth_param ${auth.scheme} children 2 startup=1`;
  switch (auth.scheme) {
    case "basic":
      return `auth_param basic program ${HELPERS}/basic_ncsa_auth ${dir}/basic\nauth_param basic realm ${REALM}\n${helpers}`;
    case "digest":
      return `auth_param digest program ${HELPERS}/digest_file_auth -c ${dir}/digest\nauth_param digest realm ${REALM}\n${helpers}`;
    case "negotiate":
      return `auth_param negotiate program ${HELPERS}/negotiate_kerberos_auth -k ${auth.keytab} -s ${auth.principal}\n${helpers}`;
  }
}

function writePassword(dir: string, { scheme, user, password }: Extract<SquidAuth, { password: string }>): void {
  const md5 = (text: string) => createHash("md5").update(text).digest("hex");
  // RFC 7616 §3.4.2: A1.
  const kept = scheme === "basic" ? md5(password) : `${REALM}:${md5(`${user}:${REALM}:${password}`)}`;
  writeFileSync(join(dir, scheme), `${user}:${kept}\n`);
}
