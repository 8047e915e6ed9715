/** Addresses in the network namespaces. They are private to each run, so they are constant. */
export const INSIDE = "10.93.0.2";
/** The company's own services, at the border of its network. */
export const BORDER = "10.93.0.1";
/** culvert's server, outside the company: TEST-NET-3. */
export const SERVER = "203.0.113.10";

export const NAMES = {
  /** Names that all machines of the company can resolve. */
  proxy: "proxy.corp.example",
  kdc: "kdc.corp.example",
  /** Only the proxy can resolve this name, as in companies without public DNS. */
  server: "culvert.example.net",
  /** A name of the server that can also be resolved inside. */
  serverKnownInside: "known.example.net",
} as const;

/** The ports of the border that are open to the inside. */
export const PORTS = { http: 3128, https: 3129, socks: 1080, inspecting: 8080, kerberos: 88 } as const;

/** Ports of the server on the loopback outside, for agents whose TLS is terminated at the border. */
export const INSECURE_PORT = 8098;
