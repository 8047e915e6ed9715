import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { started } from "../../harness/started.ts";
import { TempDir } from "../../harness/temp.ts";
import { BORDER, NAMES, PORTS } from "./addresses.ts";
import type { CorporateNetwork } from "./network.ts";
import { Service } from "./service.ts";
import type { SquidAuth } from "./squid.ts";

const REALM = "CORP.EXAMPLE";
const USER = `alice@${REALM}`;
const PROXY = `HTTP/${NAMES.proxy}@${REALM}`;
type Env = Readonly<Record<string, string>>;

/** A Kerberos realm with a user and a proxy, and MIT's KDC for it. */
export class Realm implements AsyncDisposable {
  readonly user = USER;
  readonly #network: CorporateNetwork;
  readonly #dir: TempDir;
  #kdc: Service | undefined;

  private constructor(network: CorporateNetwork, dir: TempDir) {
    this.#network = network;
    this.#dir = dir;
  }

  static start(network: CorporateNetwork): Promise<Realm> {
    return started(new Realm(network, new TempDir()), (realm) => realm.#build());
  }

  /** For squid. */
  get auth(): SquidAuth {
    // Its replay cache would remain on this machine.
    const env = { KRB5_CONFIG: this.#dir.file("krb5.conf"), KRB5RCACHENAME: "none:" };
    return { scheme: "negotiate", principal: PROXY, keytab: this.#dir.file("proxy.keytab"), env };
  }

  /** The environment of a process without a ticket. */
  get env(): Env {
    return this.#envWith("no-tickets");
  }

  /** The environment of a process with a keytab, as services have it. */
  get keytabEnv(): Env {
    return { ...this.#envWith("tickets-by-key"), KRB5_CLIENT_KTNAME: this.#dir.file("user.keytab") };
  }

  /** The environment of a process with a ticket in a cache, as after a login. */
  async login(): Promise<Env> {
    const env = this.#envWith("tickets");
    await this.#network.inside.must(["kinit", "-k", "-t", this.#dir.file("user.keytab"), USER], { env });
    return env;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kdc?.[Symbol.asyncDispose]();
    this.#dir[Symbol.dispose]();
  }

  #envWith(cache: string): Env {
    return { KRB5_CONFIG: this.#dir.file("krb5.conf"), KRB5CCNAME: `FILE:${this.#dir.file(cache)}` };
  }

  async #build(): Promise<void> {
    const { outside } = this.#network;
    const dir = this.#dir;
    // squid drops root's privileges and must read its own keytab.
    chmodSync(dir.path, 0o755);
    mkdirSync(dir.file("kdc"));
    writeFileSync(dir.file("krb5.conf"), CLIENTS);
    writeFileSync(dir.file("kdc.conf"), kdcConfiguration(dir.file("kdc")));
    const env = { KRB5_CONFIG: dir.file("krb5.conf"), KRB5_KDC_PROFILE: dir.file("kdc.conf") };
    await outside.must(["kdb5_util", "create", "-s", "-r", REALM, "-P", "a master password"], { env });
    const queries = [
      `addprinc -randkey ${PROXY}`,
      `addprinc -randkey ${USER}`,
      `ktadd -k ${dir.file("proxy.keytab")} ${PROXY}`,
      `ktadd -k ${dir.file("user.keytab")} ${USER}`,
    ];
    await outside.must(["kadmin.local", "-r", REALM], { env, stdin: `${queries.join("\n")}\n` });
    chmodSync(dir.file("proxy.keytab"), 0o644);
    const argv = ["krb5kdc", "-n", "-r", REALM];
    this.#kdc = await Service.start(outside, { name: "krb5kdc", argv, port: PORTS.kerberos, env });
  }
}

const CLIENTS = `[libdefaults]
  default_realm = ${REALM}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
[realms]
  ${REALM} = {
    kdc = ${NAMES.kdc}:${PORTS.kerberos}
  }
[domain_realm]
  .corp.example = ${REALM}
`;

function kdcConfiguration(dir: string): string {
  return `[realms]
  ${REALM} = {
    database_name = ${dir}/principal
    key_stash_file = ${dir}/stash
    acl_file = ${dir}/acl
    kdc_listen = ${BORDER}:${PORTS.kerberos}
    kdc_tcp_listen = ${BORDER}:${PORTS.kerberos}
  }
[logging]
  kdc = STDERR
`;
}
