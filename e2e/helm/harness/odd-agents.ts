import type { Values } from "./helm.ts";
import { EVERYTHING_OF_BOTH } from "./values-of-both.ts";

const one = { servers: ["wss://culvert.example.com:443"] };
const certificate = { auth: { certificate: { existingSecret: "agent-certificate" } } };
const token = { auth: { method: "token" } };
const monitored = { podMonitor: { enabled: true, labels: { release: "prometheus" } } };

/** Values of culvert-agent that set two switches or more. */
export const ODD_AGENTS: Readonly<Record<string, Values>> = {
  "a certificate": { ...one, ...certificate },
  "a token, and the server's CA as text": {
    ...one,
    ...token,
    serverCA: { pem: "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n" },
  },
  "a DaemonSet with a token, monitored": {
    ...one,
    ...token,
    ...monitored,
    kind: "DaemonSet",
    agentIdFrom: "node",
    serverCA: { existingConfigMap: "server-ca", key: "bundle.pem" },
    networkPolicy: { metricsFrom: [{ namespaceSelector: {} }] },
  },
  "a DaemonSet with a certificate, without a policy": {
    ...one,
    ...certificate,
    kind: "DaemonSet",
    networkPolicy: { enabled: false },
  },
  "three servers and three replicas": {
    ...certificate,
    servers: ["wss://a.example.com:443", "wss://b.example.com:443", "wss://c.example.com:443"],
    replicas: 3,
    cluster: "blue",
    agentIdFrom: "random",
    spread: "required",
  },
  "one address for six servers": { ...one, ...certificate, uplinks: "6" },
  "one replica, and no budget": {
    ...one,
    ...certificate,
    replicas: 1,
    podDisruptionBudget: { enabled: false },
    spread: "off",
  },
  "proxies with a password and a certificate": {
    ...one,
    ...certificate,
    proxy: {
      urls: ["https://proxy.corp.example:3129", "socks5h://socks.corp.example:1080"],
      credentials: { existingSecret: "proxy-login", key: "login" },
      ca: { existingConfigMap: "corporate-ca" },
      certificate: { existingSecret: "proxy-certificate", certKey: "c.pem", keyKey: "k.pem" },
    },
    outerCA: { existingSecret: "middlebox-ca", key: "bundle.pem" },
  },
  "a PAC script, and a middlebox with a well-known CA": {
    ...one,
    ...certificate,
    proxy: { pac: { script: 'function FindProxyForURL() { return "DIRECT"; }' } },
    outerCA: { system: true },
  },
  "a PAC script by its address, and tokens": {
    ...one,
    ...token,
    serverCA: { existingSecret: "server-ca" },
    proxy: { pac: { url: "http://pac.corp.example/proxy.pac" } },
  },
  "targets, and options": {
    ...one,
    ...certificate,
    targets: { allow: ["10.0.0.0/8", "*.svc.cluster.local:443"], deny: ["10.0.0.1:22"], allowLoopback: true },
    options: { keepalive: "30s", "drain-timeout": "2m", "log-level": "debug" },
    ports: { health: 9090, admin: 0 },
  },
  "everything that pods take from values": {
    ...one,
    ...certificate,
    ...monitored,
    networkPolicy: {
      metricsFrom: [{ namespaceSelector: {} }],
      egress: [{ to: [{ ipBlock: { cidr: "10.0.0.0/8" } }] }],
    },
    ...EVERYTHING_OF_BOTH,
    hostAliases: [{ ip: "192.0.2.1", hostnames: ["culvert.example.com"] }],
    dnsConfig: { options: [{ name: "ndots", value: "1" }] },
    tests: { caller: { server: "https://culvert-server.culvert:8090", existingSecret: "caller" } },
  },
  "texts that look like something else, large numbers, and a duration in parts": {
    ...one,
    ...certificate,
    cluster: "1e3",
    image: { tag: "1.10" },
    commonLabels: { on: "off" },
    podLabels: { number: "1", yes: "true" },
    options: { "max-streams": 1_000_000, "drain-timeout": "1h0.5m1500ms" },
  },
};
