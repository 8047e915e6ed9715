import { writeFileSync } from "node:fs";
import { flags } from "../../harness/pki-files.ts";
import type { Program } from "../../harness/program.ts";
import type { TempDir } from "../../harness/temp.ts";
import type { Assets } from "../assets.ts";
import { CONTROL_PLANE, PORTS, SERVICES } from "./addresses.ts";
import { Kubectl } from "./kubectl.ts";
import type { Namespace } from "./namespace.ts";
import type { WorldPki } from "./pki.ts";

/** Of etcd or kube-apiserver; well within the deadline of a check that starts one. */
const STARTED_MS = 45_000;

/** etcd, and one kube-apiserver or several on it. */
export class ControlPlane implements AsyncDisposable {
  readonly #namespace: Namespace;
  readonly #assets: Assets;
  readonly #pki: WorldPki;
  readonly #dir: TempDir;
  readonly #programs: Program[] = [];

  constructor(namespace: Namespace, assets: Assets, pki: WorldPki, dir: TempDir) {
    this.#namespace = namespace;
    this.#assets = assets;
    this.#pki = pki;
    this.#dir = dir;
  }

  async startEtcd(): Promise<void> {
    const clients = `http://127.0.0.1:${PORTS.etcd}`;
    const peers = `http://127.0.0.1:${PORTS.etcdPeers}`;
    const etcd = this.#start("etcd", this.#assets.etcd, {
      dataDir: this.#dir.file("etcd"),
      listenClientUrls: clients,
      advertiseClientUrls: clients,
      listenPeerUrls: peers,
      initialAdvertisePeerUrls: peers,
      initialCluster: `default=${peers}`,
      unsafeNoFsync: true,
      logLevel: "warn",
    });
    const healthy = async () => (await this.#namespace.run(["curl", "-sf", `${clients}/health`])).code === 0;
    await etcd.waitUntil(healthy, STARTED_MS, "a healthy etcd");
  }

  /** Resolves when it is ready; with no egress configuration it dials by itself. */
  async startKubeApiserver(egress: string | undefined, port: number = PORTS.kubeApiserver): Promise<KubeApiserver> {
    const program = this.#start(`kube-apiserver-${port}`, this.#assets.kubeApiserver, {
      securePort: port,
      ...this.#kubeApiserverOptions(),
      ...(egress === undefined ? {} : { egressSelectorConfigFile: this.#write(`egress-${port}.yaml`, egress) }),
    });
    const kubeconfig = this.#write(`kubeconfig-${port}`, this.#config(port));
    await program.waitUntil(() => this.#isReady(port), STARTED_MS, "a kube-apiserver that is ready");
    return { program, kubectl: new Kubectl(this.#namespace, this.#assets.kubectl, kubeconfig) };
  }

  get programs(): readonly Program[] {
    return this.#programs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // All at once, and without its minute of grace for kube-apiserver: etcd's data ends with it.
    await Promise.all(this.#programs.map((program) => program.kill()));
  }

  #kubeApiserverOptions(): Readonly<Record<string, string>> {
    const { kubeApiserver, frontProxy, kubeletClient, admin, node, serviceAccountKey } = this.#pki;
    return {
      etcdServers: `http://127.0.0.1:${PORTS.etcd}`,
      bindAddress: "127.0.0.1",
      advertiseAddress: CONTROL_PLANE.ipv4,
      endpointReconcilerType: "none",
      tlsCertFile: kubeApiserver.cert,
      tlsPrivateKeyFile: kubeApiserver.key,
      clientCaFile: admin.ca,
      authorizationMode: "Node,RBAC",
      enableBootstrapTokenAuth: "true",
      // The accounts that it asks for would have to come from a controller manager.
      disableAdmissionPlugins: "ServiceAccount",
      serviceAccountIssuer: "https://kubernetes.default.svc",
      serviceAccountKeyFile: serviceAccountKey,
      serviceAccountSigningKeyFile: serviceAccountKey,
      serviceClusterIpRange: SERVICES.range,
      kubeletClientCertificate: kubeletClient.cert,
      kubeletClientKey: kubeletClient.key,
      kubeletCertificateAuthority: node.ca,
      kubeletPreferredAddressTypes: "InternalIP,Hostname,InternalDNS",
      proxyClientCertFile: frontProxy.cert,
      proxyClientKeyFile: frontProxy.key,
      requestheaderClientCaFile: frontProxy.ca,
      requestheaderAllowedNames: "front-proxy-client",
      requestheaderUsernameHeaders: "X-Remote-User",
      requestheaderGroupHeaders: "X-Remote-Group",
      requestheaderExtraHeadersPrefix: "X-Remote-Extra-",
      // A line for each WebSocket that it translates for a node.
      vmodule: "translatinghandler=4",
    };
  }

  /** By HTTP: it is asked often, and kubectl takes a tenth of a second to begin. */
  async #isReady(port: number): Promise<boolean> {
    const { kubeApiserver, admin } = this.#pki;
    const identity = ["--cacert", kubeApiserver.ca, "--cert", admin.cert, "--key", admin.key];
    // The namespace that objects go to is made a moment after it calls itself ready.
    const urls = ["readyz", "api/v1/namespaces/default"].map((path) => `https://127.0.0.1:${port}/${path}`);
    const { code } = await this.#namespace.run(["curl", "-sf", "--fail-early", "-m", "2", ...identity, ...urls]);
    return code === 0;
  }

  #start(name: string, binary: string, options: Readonly<Record<string, string | number | boolean>>): Program {
    const program = this.#namespace.start(name, [binary, ...flags(options)]);
    this.#programs.push(program);
    return program;
  }

  #config(port: number): string {
    const { kubeApiserver, admin } = this.#pki;
    const cluster = { server: `https://127.0.0.1:${port}`, "certificate-authority": kubeApiserver.ca };
    const user = { "client-certificate": admin.cert, "client-key": admin.key };
    return JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "world", cluster }],
      users: [{ name: "admin", user }],
      contexts: [{ name: "world", context: { cluster: "world", user: "admin" } }],
      "current-context": "world",
    });
  }

  #write(name: string, text: string): string {
    const path = this.#dir.file(name);
    writeFileSync(path, text);
    return path;
  }
}

export interface KubeApiserver {
  readonly program: Program;
  /** As its administrator. */
  readonly kubectl: Kubectl;
}
