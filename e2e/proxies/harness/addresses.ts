/** The namespaces have these addresses to themselves, so they are the same in every run. */
export const INSIDE = "10.93.0.2";
/** The company's own services, at the border of its network. */
export const BORDER = "10.93.0.1";
/** culvert's server: TEST-NET-3, somewhere on the Internet. */
export const SERVER = "203.0.113.10";

export const NAMES = {
  /** Everybody in the company knows these. */
  proxy: "proxy.corp.example",
  kdc: "kdc.corp.example",
  /** Only the proxy can resolve this one, as in companies whose name servers know nothing of the Internet. */
  server: "culvert.example.net",
  /** The same server, by a name that is known inside too. */
  serverKnownInside: "known.example.net",
} as const;

/** What the border lets in from the inside, and nothing else. */
export const PORTS = { http: 3128, https: 3129, socks: 1080, inspecting: 8080, kerberos: 88 } as const;

/** Of the server, on the loopback outside: for agents whose TLS ends at the border. */
export const INSECURE_PORT = 8098;
