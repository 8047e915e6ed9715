import { generateKeyPairSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createPki } from "../../../cli/pki/pki.ts";
import { Authority, type CertificateAndKey } from "../../../shared/pki/certificates.ts";
import type { TempDir } from "../../harness/temp.ts";
import { AT_NODE, CONTROL_PLANE, NODE, SERVICES } from "./addresses.ts";

const SERVICE_NAMES = ["web", "webhook", "echoes"].map((name) => `${name}.default.svc`);

/** Where the certificates of a world are: culvert's own set, and those that any control plane has. */
export interface WorldPki {
  /** The folder with the files of `culvert pki`. */
  readonly culvert: string;
  /** A client certificate that nobody here signed. */
  readonly stranger: Pair;
  /** The authority of kube-apiserver, and of its clients. */
  readonly kubernetes: Pair;
  readonly kubeApiserver: Pair;
  readonly admin: Pair;
  readonly kubeletClient: Pair;
  readonly frontProxy: Pair;
  /** For the Kubernetes API, of the server that KKP's users' clusters know: it asks for TokenReviews. */
  readonly konnectivity: Pair;
  /** Of every TLS port in the node's namespace. */
  readonly node: Pair;
  readonly serviceAccountKey: string;
}

/** Paths of a certificate, its key, and the authority it comes from. */
export interface Pair {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

export async function createWorldPki(dir: TempDir): Promise<WorldPki> {
  const culvert = dir.file("culvert");
  await createPki({ dir: culvert, clusterNames: [CONTROL_PLANE.ipv4] });
  const [kubernetes, nodes, frontProxies, strangers] = await Promise.all(
    ["kubernetes", "nodes", "front-proxies", "strangers"].map((name) => Authority.create(name, 1)),
  );
  if (!kubernetes || !nodes || !frontProxies || !strangers) throw new Error("an authority is missing");
  const pair = async (name: string, authority: Authority, leaf: Promise<CertificateAndKey>): Promise<Pair> => {
    const { cert, key } = await leaf;
    const write = (extension: string, text: string) => {
      const path = dir.file(`${name}.${extension}`);
      writeFileSync(path, text, { mode: 0o600 });
      return path;
    };
    return { cert: write("crt", cert), key: write("key", key), ca: write("ca.crt", authority.cert) };
  };
  const nodeNames = [NODE.ipv4, NODE.ipv6, NODE.name, "127.0.0.1", ...SERVICE_NAMES, SERVICES.web];
  const [authority, stranger, kubeApiserver, admin, kubeletClient, frontProxy, konnectivity, node] = await Promise.all([
    pair("kubernetes", kubernetes, Promise.resolve(kubernetes)),
    pair("stranger", strangers, strangers.issue({ cn: "stranger", usage: "client" })),
    pair(
      "kube-apiserver",
      kubernetes,
      kubernetes.issue({ cn: "kube-apiserver", names: ["127.0.0.1", AT_NODE], usage: "server" }),
    ),
    pair("admin", kubernetes, kubernetes.issue({ cn: "admin", o: ["system:masters"], usage: "client" })),
    pair("kubelet-client", kubernetes, kubernetes.issue({ cn: "kube-apiserver-kubelet-client", usage: "client" })),
    pair("front-proxy", frontProxies, frontProxies.issue({ cn: "front-proxy-client", usage: "client" })),
    pair("konnectivity", kubernetes, kubernetes.issue({ cn: "system:konnectivity-server", usage: "client" })),
    pair("node", nodes, nodes.issue({ cn: NODE.name, names: nodeNames, usage: "server" })),
  ]);
  const serviceAccountKey = dir.file("service-account.key");
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  writeFileSync(serviceAccountKey, privateKey.export({ type: "sec1", format: "pem" }));
  const clients = { stranger, admin, kubeletClient, frontProxy, konnectivity };
  return { culvert, kubernetes: authority, kubeApiserver, ...clients, node, serviceAccountKey };
}
