import { dirname, resolve } from "node:path";
import { createSecureContext } from "node:tls";
import { parse } from "yaml";
import * as z from "zod";
import { bracketed } from "../address/target.ts";
import { firstIssue, schemaMessage } from "../basics/text.ts";
import { readTextSync } from "../documents/read-bounded.ts";
import { printable } from "../outcomes.ts";
import { certificates, mayBeTrusted } from "../tls/certificate-fields.ts";

/** Address of an API server, the CA that it is trusted by, and the credentials of this process. */
export interface ApiAccess {
  readonly server: URL;
  readonly tls: {
    readonly ca?: string;
    readonly cert?: string;
    readonly key?: string;
    /** The name in its certificate, where it differs from the one in the URL. */
    readonly servername?: string;
  };
  readonly token?: string;
}

/** Reads the files anew at each call, because tokens and certificates live for hours. Throws a sentence. */
export type ReadAccess = () => ApiAccess;

/** Folder in which Kubernetes mounts the credentials of a pod. */
const POD_CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Access of a pod to the API server of its cluster. */
export function inCluster(env: NodeJS.ProcessEnv = process.env, folder = POD_CREDENTIALS): ReadAccess {
  return () => {
    const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = env;
    if (!host) {
      throw new Error("this process is in no pod (KUBERNETES_SERVICE_HOST is not set): give a kubeconfig");
    }
    return {
      server: new URL(`https://${bracketed(host)}:${port}`),
      tls: { ca: readTextSync(resolve(folder, "ca.crt")) },
      token: readTextSync(resolve(folder, "token")).trim(),
    };
  };
}

const entry = z.object({ name: z.string() });
const Kubeconfig = z.object({
  "current-context": z.string().optional(),
  contexts: z.array(entry.extend({ context: z.object({ cluster: z.string(), user: z.string().optional() }) })),
  clusters: z.array(
    entry.extend({
      cluster: z.object({
        server: z.string(),
        "certificate-authority": z.string().optional(),
        "certificate-authority-data": z.string().optional(),
        "insecure-skip-tls-verify": z.boolean().optional(),
        "tls-server-name": z.string().optional(),
        "proxy-url": z.string().optional(),
      }),
    }),
  ),
  users: z.array(
    entry.extend({
      user: z
        .looseObject({
          "client-certificate": z.string().optional(),
          "client-certificate-data": z.string().optional(),
          "client-key": z.string().optional(),
          "client-key-data": z.string().optional(),
          token: z.string().optional(),
          tokenFile: z.string().optional(),
        })
        .nullish(),
    }),
  ),
});

/** Access by the current context of a kubeconfig. It is refused if it needs more than certificates and tokens. */
export function kubeconfig(path: string): ReadAccess {
  return () => {
    try {
      return accessOf(path);
    } catch (error) {
      throw new Error(`kubeconfig ${path}: ${(error as Error).message}`, { cause: error });
    }
  };
}

function accessOf(path: string): ApiAccess {
  const config = readConfig(path);
  const current = config["current-context"] ?? "";
  const { context } = named(config.contexts, current, "context");
  const { cluster } = named(config.clusters, context.cluster, "cluster");
  const { user } = named(config.users, context.user ?? "", "user");
  const folder = dirname(path);
  if (cluster["proxy-url"] !== undefined) throw new Error("a proxy-url is not supported");
  if (cluster["insecure-skip-tls-verify"] === true) {
    throw new Error("insecure-skip-tls-verify is not supported: give the CA (certificate-authority)");
  }
  if (!URL.canParse(cluster.server) || new URL(cluster.server).protocol !== "https:") {
    throw new Error(`the server must be an https URL, not "${printable(cluster.server, 60)}"`);
  }
  const unsupported = Object.keys(user ?? {}).find((key) => !SUPPORTED.has(key));
  if (unsupported !== undefined) {
    throw new Error(
      `a user with "${printable(unsupported, 40)}" is not supported: give a client certificate or a token`,
    );
  }
  const pem = (holder: Readonly<Record<string, unknown>>, key: string): string | undefined => {
    const { [`${key}-data`]: data, [key]: file } = holder;
    if (typeof data === "string") return Buffer.from(data, "base64").toString("utf8");
    return typeof file === "string" ? readTextSync(resolve(folder, file)) : undefined;
  };
  const ca = pem(cluster, "certificate-authority");
  const cert = pem(user ?? {}, "client-certificate");
  const key = pem(user ?? {}, "client-key");
  const token = user?.tokenFile === undefined ? user?.token : readTextSync(resolve(folder, user.tokenFile));
  if ((cert === undefined) !== (key === undefined)) throw new Error("a client certificate and its key come together");
  if (cert === undefined && token === undefined) {
    throw new Error("its user has neither a client certificate nor a token: the API server would not answer us");
  }
  const { "tls-server-name": servername } = cluster;
  return {
    server: new URL(cluster.server),
    tls: {
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined || key === undefined ? {} : { cert, key }),
      ...(servername === undefined ? {} : { servername }),
    },
    ...(token === undefined ? {} : { token: token.trim() }),
  };
}

/** Keys of a user that are supported. Others (exec, auth-provider, as, …) mean that these do not suffice. */
const SUPPORTED: ReadonlySet<string> = new Set([
  "client-certificate",
  "client-certificate-data",
  "client-key",
  "client-key-data",
  "token",
  "tokenFile",
]);

function readConfig(path: string): z.infer<typeof Kubeconfig> {
  const text = readTextSync(path);
  let content: unknown;
  try {
    content = parse(text);
  } catch (error) {
    // The parser's message would show the line, which may hold a key.
    throw new Error("it is no YAML", { cause: error });
  }
  const read = Kubeconfig.safeParse(content, { error: schemaMessage });
  if (read.success) return read.data;
  throw new Error(firstIssue(read.error));
}

function named<T extends { readonly name: string }>(entries: readonly T[], name: string, kind: string): T {
  const found = entries.find((one) => one.name === name);
  if (found !== undefined) return found;
  throw new Error(name === "" ? `it names no ${kind} to use` : `it has no ${kind} "${printable(name, 60)}"`);
}

/** Throws a sentence if this access cannot work, whatever the API server answers. */
export function checkAccess(read: ReadAccess): void {
  const { server, tls } = read();
  const where = `the API server ${server.host}`;
  try {
    // Node ignores what it cannot read in a CA file, and would then trust no server.
    if (tls.ca !== undefined && certificates(tls.ca).every((one) => !mayBeTrusted(one)))
      throw new Error("it holds no certificate of a CA");
  } catch (error) {
    throw new Error(
      `the CA of ${where} cannot be used: there is no certificate of a CA in it (a leaf is none), or a damaged one`,
      {
        cause: error,
      },
    );
  }
  try {
    createSecureContext(tls);
  } catch (error) {
    const { code = "damaged" } = error as NodeJS.ErrnoException;
    throw new Error(`our certificate and key for ${where} cannot be used (${code})`, { cause: error });
  }
}
