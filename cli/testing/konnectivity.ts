/**
 * Argument lists with which installers start Konnectivity, by what they are; read from their sources in November 2026.
 */
export interface ArgumentList {
  readonly installer: string;
  readonly command: "server" | "agent";
  /** `file` stands for every file that the list names. */
  arguments(file: string): readonly string[];
}

const ECDHE_SUITES =
  "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

const SOCKET = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket";

/** The arguments that both of HyperShift's agents have, in front of their identifiers. */
const hyperShiftAgent = (file: string, healthPort: string, ...more: string[]): string[] => [
  "--logtostderr=true",
  "--ca-cert",
  file,
  "--agent-cert",
  file,
  "--agent-key",
  file,
  "--proxy-server-host",
  "konnectivity.clusters.example.com",
  "--proxy-server-port",
  "443",
  "--health-server-port",
  healthPort,
  ...more,
  "--keepalive-time",
  "30s",
  "--probe-interval",
  "5s",
  "--sync-interval",
  "5s",
  "--sync-interval-cap",
  "30s",
  "--v",
  "3",
];

const ocmAgent = (cluster: string): ArgumentList => ({
  installer: `OCM, agent of ${cluster}`,
  command: "agent",
  arguments: (file) => [
    "--proxy-server-host=cluster-proxy.example.com",
    "--proxy-server-port=8091",
    `--agent-identifiers=host=${cluster}`,
    `--ca-cert=${file}`,
    `--agent-cert=${file}`,
    `--agent-key=${file}`,
  ],
});

export const ARGUMENT_LISTS: readonly ArgumentList[] = [
  {
    installer: "HyperShift, server",
    command: "server",
    arguments: (file) => [
      "--logtostderr=true",
      "--log-file-max-size=0",
      "--cluster-cert",
      file,
      "--cluster-key",
      file,
      "--cluster-ca-cert",
      file,
      "--server-cert",
      file,
      "--server-key",
      file,
      "--server-ca-cert",
      file,
      "--server-port",
      "8090",
      "--agent-port",
      "8091",
      "--health-port",
      "2041",
      "--admin-port=8093",
      "--mode=http-connect",
      "--proxy-strategies=destHost,defaultRoute",
      "--keepalive-time",
      "30s",
      "--frontend-keepalive-time",
      "30s",
      "--server-count",
      "3",
      "--tls-min-version=VersionTLS12",
      `--cipher-suites=${ECDHE_SUITES}`,
    ],
  },
  {
    installer: "HyperShift, agent on the nodes",
    command: "agent",
    arguments: (file) =>
      hyperShiftAgent(file, "2041", "--health-server-host", "127.0.0.1", "--agent-identifiers=default-route=true"),
  },
  {
    installer: "HyperShift, agent of the control plane",
    command: "agent",
    arguments: (file) => [
      ...hyperShiftAgent(file, "2041"),
      "--agent-identifiers",
      "ipv4=172.30.5.1&ipv4=172.30.5.2&ipv4=172.30.5.3",
    ],
  },
  {
    installer: "KKP, server",
    command: "server",
    arguments: (file) => [
      "--logtostderr=true",
      "-v=3",
      `--cluster-key=${file}`,
      `--cluster-cert=${file}`,
      `--uds-name=${SOCKET}`,
      `--kubeconfig=${file}`,
      "--server-count=2",
      "--mode=grpc",
      "--server-port=0",
      "--agent-port=8132",
      "--admin-port=8133",
      "--admin-bind-address=0.0.0.0",
      "--health-port=8134",
      "--agent-namespace=kube-system",
      "--agent-service-account=system-konnectivity-agent",
      "--delete-existing-uds-file=true",
      "--authentication-audience=system:konnectivity-server",
      "--proxy-strategies=default",
      "--keepalive-time=1m",
      "--xfr-channel-size=150",
    ],
  },
  {
    installer: "KKP, agent",
    command: "agent",
    arguments: (file) => [
      "--logtostderr=true",
      "-v=3",
      "--sync-forever=true",
      `--ca-cert=${file}`,
      "--proxy-server-host=konnectivity-server.example.com",
      "--proxy-server-port=6443",
      "--admin-server-port=8133",
      "--health-server-port=8134",
      `--service-account-token-path=${file}`,
      "--keepalive-time=1m",
    ],
  },
  {
    installer: "Kubernetes documentation, static pod of the server",
    command: "server",
    arguments: (file) => [
      "--logtostderr=true",
      `--uds-name=${SOCKET}`,
      `--cluster-cert=${file}`,
      `--cluster-key=${file}`,
      "--mode=grpc",
      "--server-port=0",
      "--agent-port=8132",
      "--admin-port=8133",
      "--health-port=8134",
      "--agent-namespace=kube-system",
      "--agent-service-account=konnectivity-agent",
      `--kubeconfig=${file}`,
      "--authentication-audience=system:konnectivity-server",
    ],
  },
  {
    installer: "k0s, server",
    command: "server",
    arguments: (file) => [
      "--uds-name=/run/k0s/konnectivity-server/konnectivity-server.sock",
      `--cluster-cert=${file}`,
      `--cluster-key=${file}`,
      `--kubeconfig=${file}`,
      "--mode=grpc",
      "--server-port=0",
      "--agent-port=8132",
      "--admin-port=8133",
      "--health-bind-address=localhost",
      "--health-port=8092",
      "--graceful-shutdown-timeout=1ns",
      "--agent-namespace=kube-system",
      "--agent-service-account=konnectivity-agent",
      "--authentication-audience=system:konnectivity-server",
      "--logtostderr=true",
      "--stderrthreshold=1",
      "--v=1",
      "--enable-profiling=false",
      "--delete-existing-uds-file=true",
      "--server-count=3",
      "--server-id=5f3e0c1c8d0f4a5e9f6d2b7a1c3e4d5f",
      "--proxy-strategies=destHost,defaultRoute,default",
      `--cipher-suites=${ECDHE_SUITES}`,
    ],
  },
  {
    installer: "k0s, agent",
    command: "agent",
    arguments: (file) => [
      "--logtostderr=true",
      `--ca-cert=${file}`,
      "--proxy-server-host=10.0.0.10",
      "--proxy-server-port=8132",
      `--service-account-token-path=${file}`,
      "--agent-identifiers=host=10.0.0.21",
      "--agent-id=10.0.0.21",
    ],
  },
  {
    installer: "Gardener, server (until 2022)",
    command: "server",
    arguments: (file) => [
      "--logtostderr=true",
      `--cluster-cert=${file}`,
      `--cluster-key=${file}`,
      `--server-cert=${file}`,
      `--server-key=${file}`,
      `--server-ca-cert=${file}`,
      "--agent-namespace=kube-system",
      "--agent-service-account=konnectivity-agent",
      `--kubeconfig=${file}`,
      "--authentication-audience=system:konnectivity-server",
      "--keepalive-time=1m",
      "--log-file-max-size=0",
      "--delete-existing-uds-file=true",
      "--mode=http-connect",
      "--server-port=9443",
      "--agent-port=8132",
      "--admin-port=8133",
      "--health-port=8134",
      "--v=2",
      "--server-count",
      "2",
    ],
  },
  {
    installer: "OCM, server",
    command: "server",
    arguments: (file) => [
      "--server-count=3",
      "--proxy-strategies=destHost",
      `--server-ca-cert=${file}`,
      `--server-cert=${file}`,
      `--server-key=${file}`,
      `--cluster-ca-cert=${file}`,
      `--cluster-cert=${file}`,
      `--cluster-key=${file}`,
    ],
  },
  ocmAgent("blue"),
  ocmAgent("red"),
];

/**
 * The flags that Konnectivity 0.36 prints with --help, without --help itself; `log-flush-frequency` is hidden there.
 */
export const FLAGS_OF_0_36: Readonly<Record<"server" | "agent", string>> = {
  server:
    "add-dir-header admin-bind-address admin-port agent-bind-address agent-namespace agent-port agent-service-account alsologtostderr alsologtostderrthreshold authentication-audience backend-dial-timeout cipher-suites cluster-ca-cert cluster-cert cluster-key delete-existing-uds-file enable-contention-profiling enable-lease-controller enable-profiling frontend-keepalive-time graceful-shutdown-timeout health-bind-address health-port keepalive-time kube-api-content-type kubeconfig kubeconfig-burst kubeconfig-qps lease-label lease-namespace legacy-stderr-threshold-behavior log-backtrace-at log-dir log-file log-file-max-size logtostderr mode one-output proxy-strategies server-bind-address server-ca-cert server-cert server-count server-id server-key server-port skip-headers skip-log-headers stderrthreshold tls-min-version uds-name v vmodule warn-on-channel-limit xfr-channel-size",
  agent:
    "add-dir-header admin-bind-address admin-server-port agent-cert agent-id agent-identifiers agent-key alpn-proto alsologtostderr alsologtostderrthreshold ca-cert count-server-leases enable-contention-profiling enable-profiling health-server-host health-server-port keepalive-time kube-api-content-type kubeconfig lease-label lease-namespace legacy-stderr-threshold-behavior log-backtrace-at log-dir log-file log-file-max-size logtostderr one-output probe-interval proxy-server-host proxy-server-port server-count-source service-account-token-path skip-headers skip-log-headers stderrthreshold sync-forever sync-interval sync-interval-cap v vmodule warn-on-channel-limit xfr-channel-size",
};
