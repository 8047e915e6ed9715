/** One row of the table of faults. The facts of the case replace `{by}`, `{names}`, `{validFrom}` and `{validTo}`. */
export interface FaultRow {
  /** The fault, as a sentence. */
  readonly says: string;
  /** The advice. `{option}` names the proxy or the script at fault, or else the server. */
  readonly next: string;
  /** Nothing changes before a person acts, and asking often does harm. Absent: the usual backoff. */
  readonly isSlow?: true;
  /** Value of `reason` in `culvert_agent_uplink_failures_total`, if not the code. */
  readonly label?: string;
}

/**
 * One row for each fault between an agent and its server, as `OUTCOMES` has one for each bad end of a CONNECT: what the
 * metric calls it, when the agent tries again, and what the doctor says of it. The particulars of the case are in the
 * message of the `DialFault`, which the doctor prints above.
 */
export const FAULTS = {
  // The agent's own files and clock.
  configuration: {
    says: "Something in the configuration cannot be used: {by}.",
    next: "Mend the file, or the option that names it.",
  },
  no_credential: {
    says: "The agent has no credential: neither a certificate nor a token is given, so no server can know it.",
    next: "Give --agent-cert and --agent-key, or --service-account-token-path.",
  },
  agent_expired: {
    says: "The agent's certificate {by} expired on {validTo}.",
    next: "Renew it: a running agent reads the file again by itself.",
  },
  agent_not_yet_valid: {
    says: "The agent's certificate {by} is not valid before {validFrom}.",
    next: "If this machine's clock is behind (compare it with another one), set it. If it is right, issue --agent-cert again with an earlier beginning, or wait until then.",
  },
  token_expired: {
    says: "The token {by} expired on {validTo}.",
    next: "Give the file that Kubernetes renews (a projected volume), not a copy of it.",
  },
  ca_expired: {
    says: "The CA certificate in {by} expired on {validTo}: whoever it has signed proves nothing by it.",
    next: "Give the CA's present certificate in that file: a running agent reads it again by itself.",
  },
  clock: {
    says: "The clock of this machine is {by}: certificates and tokens that are valid may not be by it.",
    next: "Set this machine's clock (NTP, or chrony), or the server's if it is that one that is wrong.",
  },

  // The network, on the way to the server, to a proxy, or to the script of --pac.
  dns: {
    says: "The name of {by} does not resolve here.",
    next: "Correct it in {option}, or this machine's name servers. Where only a proxy resolves outside names, give it as --proxy: http://, https:// and socks5h:// leave names to it, socks5:// does not. A script of --pac is fetched through no proxy.",
  },
  refused: {
    says: "The connection to {by} is refused: nothing listens there, or a firewall answers in its place.",
    next: "Check host and port in {option}, and whether the server, its balancer or the proxy runs; where only a proxy leads out, give it as --proxy.",
  },
  unreachable: {
    says: "There is no way from here to {by}.",
    next: "Check host and port in {option}, and this machine's routes and firewall; where only a proxy leads out, give it as --proxy.",
  },
  timeout: {
    says: "No answer comes from {by}: a firewall swallows what is sent there, or it hangs.",
    next: "Check host and port in {option}, and ask the network team to let TCP connections to it out, or for the proxy to use (--proxy).",
  },
  closed: {
    says: "The connection to {by} is broken off without a word.",
    next: "Check the port in {option}, and see whether the server or proxy runs: a router or balancer that reaches none cuts connections so, and so does a server that has no file descriptors left (its log says it). Else a firewall may do it: ask the network team.",
  },

  // Proxies.
  proxy_auth_required: {
    says: "The proxy {by} wants to know who asks, and no user and password are given for it.",
    next: "Give them by --proxy-credentials-file, or user:password@ in the proxy's URL.",
  },
  proxy_auth_refused: {
    isSlow: true,
    says: "The proxy {by} does not take the user and password that are given for it.",
    next: "Correct them before trying again: many wrong ones may lock the account.",
  },
  proxy_auth_unsupported: {
    says: "The proxy {by} asks for a kind of login that is not to be had with what is given.",
    next: "See the detail above; for NTLM alone, a local helper such as px or cntlm stands between.",
  },
  proxy_auth_withheld: {
    says: "The proxy {by} wants to know who asks, and is not told: a script that was fetched without TLS names it, so anybody on the path may have named another proxy.",
    next: "Name the proxy by --proxy, or give the script in --pac by an https:// URL or as a file.",
  },
  proxy_silent: {
    says: "The proxy {by} takes the connection and does not answer: it does not reach the server, or is of another kind than its URL says.",
    next: "Ask its operators whether it resolves and reaches the server's host and port, and works at all; or correct scheme and port in {option}.",
  },
  kdc_silent: {
    says: "The proxy {by} wants a Kerberos ticket, and none came in time: the KDC, which gives tickets, does not answer this machine.",
    next: "Check that this machine reaches the KDC (krb5.conf or DNS names it; port 88, UDP and TCP), and that it runs. KRB5_TRACE=/dev/stderr kinit (with a keytab: kinit -k -t FILE), as the agent's user and with its environment, shows whom it asks in vain.",
  },
  proxy_closed: {
    says: "The proxy {by} closes the connection instead of answering.",
    next: "Look at the proxy's log: it may forbid the port, or want a login that it does not ask for.",
  },
  proxy_forbidden: {
    says: "The proxy {by} does not let connections to the server through.",
    next: "Ask its operators to allow CONNECT to the server's host and port.",
  },
  proxy_unavailable: {
    says: "The proxy {by} cannot reach the server, or has no time.",
    next: "Ask its operators whether it can resolve and reach the server's host and port.",
  },
  proxy_tls: {
    says: "TLS with the proxy {by} itself fails.",
    next: "See the detail above. Is it an https:// proxy at all? Is it called by a name that is in its certificate? If that comes from a CA of your own, give it as --proxy-ca.",
  },
  proxy_protocol: {
    says: "What listens at {by} is no proxy of the kind that is named.",
    next: "Correct scheme, host and port of the proxy.",
  },
  pac: {
    says: "The script of --pac gives no route: {by}.",
    next: "Correct --pac or the script, or name the proxy by --proxy.",
  },

  // TLS.
  unknown_ca: {
    says: `The server's certificate is signed by "{by}", which is not in --ca-cert.`,
    next: `If "{by}" is the server's CA for agents, give its present certificate as --ca-cert: each run of culvert pki makes another CA of the same name. If it is not, check the port in --server, the one for agents; else something on the path opens TLS (see --outer-ca).`,
  },
  intercepted: {
    says: `TLS is intercepted by "{by}": the certificate that comes is not signed by the server's CA.`,
    next: `Ask the network team to exempt the server from TLS inspection, or go through it: --outer-ca here with the CA certificate of "{by}", --inner-tls=auto at the server. If "{by}" is the server's own CA, give it as --ca-cert, and check that the port in --server is the one for agents.`,
  },
  outer_ca: {
    says: `TLS is intercepted by "{by}", whom neither --ca-cert nor --outer-ca knows.`,
    next: `Ask the network team for the CA certificate of "{by}", and give it as --outer-ca, beside what is there; or to exempt the server from TLS inspection. If "{by}" is the server's own CA, give it as --ca-cert.`,
  },
  inner_tls_never: {
    says: `TLS is intercepted by "{by}", and this agent may not go through that: --inner-tls=never is set here.`,
    next: `Set --inner-tls=auto here, with the CA certificate of "{by}" as --outer-ca; the server needs --inner-tls=auto, too. Or ask the network team to exempt the server from TLS inspection.`,
  },
  inner_untrusted: {
    says: `The certificate shown inside inner TLS is signed by "{by}", which is not in --ca-cert.`,
    next: `If "{by}" is the server's CA for agents, give its present certificate as --ca-cert. If it is not, somebody in between plays the server: tell the network team.`,
  },
  server_expired: {
    says: "The certificate of {by} expired on {validTo}.",
    next: "Renew it at the server (--cluster-cert), or at whatever opens TLS before it: a balancer, or an inspection of the network team's.",
  },
  server_not_yet_valid: {
    says: "The certificate of {by} is not valid before {validFrom}.",
    next: "If this machine's clock is behind (compare it with another one), set it. If it is right, issue the server's --cluster-cert again with an earlier beginning, or wait until then.",
  },
  wrong_name: {
    says: "The server's certificate is for {names}, not for {by}.",
    next: "Name the server in --server as its certificate does (--server-address says where to dial instead), or issue the server's --cluster-cert for {by} too. If something opens TLS on the way, ask who runs it.",
  },
  wrong_usage: {
    says: "The certificate of {by} may not be used by a server: most likely it is a client's.",
    next: "Issue the server's --cluster-cert again, with serverAuth in its extended key usage and digitalSignature in its key usage. If something opens TLS on the way, ask who runs it.",
  },
  unknown_name: {
    says: "Whoever answers for {by} knows no server of that name (SNI).",
    next: "Correct the name in --server, or add it to the server's cluster (agents.sni) or to the router's routes.",
  },
  no_tls: {
    says: "What answers at {by}, or behind it, does not speak TLS.",
    next: "Check the port in --server: is it the server's port for agents? If it is, a proxy may show a page of its own: log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without.",
  },
  tls: {
    says: "The TLS handshake with {by}, or with what is behind it, fails.",
    next: "Check the port in --server, and whether the server runs; its log may know why. If TLS says above what is wrong, compare --tls-min-version and --cipher-suites of both ends. Else a proxy, balancer or firewall may let no TLS to the server through: ask who runs it.",
  },

  // The upgrade, and the tunnel.
  grpc_server: {
    says: "What answers at {by} looks like konnectivity-server, or another server of gRPC, and not like culvert.",
    next: "Correct host and port in --server: konnectivity-server takes no agents of culvert (docs/konnectivity.md). If a culvert server is there, something in between lets no WebSockets through: ask who runs it, and look at the server's log.",
  },
  upgrade_stripped: {
    says: "The server is reached, but not the WebSocket upgrade: something in between takes it away.",
    next: "Ask whoever runs the proxy or balancer to pass WebSocket upgrades to the server, or to leave its TLS unopened.",
  },
  web_page: {
    says: "A web page comes from {by} in place of the tunnel: a login portal, a proxy or balancer that lets no tunnel through, or another server.",
    next: "Check host, port and path in --server. Open the URL of --server with https:// in a browser from here, through the proxy if there is one, and see who it is; log in there, or ask its administrators to let this machine pass without.",
  },
  redirected: {
    says: "The request is sent elsewhere: a portal that wants a login, or another server behind that name.",
    next: "Open the URL of --server with https:// in a browser from here, and see who it is.",
  },
  gateway: {
    says: "A proxy or balancer in between answers that it has no server behind it.",
    next: "See whether the server runs, and whether the balancer sends WebSockets to its port for agents; to a port without TLS, whether its address is one of --agent-insecure-trusted-cidrs (the server's log says whom it cut).",
  },
  wrong_path: {
    says: "There is a server, but nothing at the path {by}.",
    next: "Use the server's --agent-path in --server, /culvert/v1/tunnel unless it is configured.",
  },
  callers_port: {
    isSlow: true,
    says: "{by} is the server's port for callers (CONNECT), not the one for agents.",
    next: "Correct the port in --server: agents come to the server's --agent-port.",
  },
  no_answer: {
    says: "TLS with {by} stands, but the WebSocket does not come up.",
    next: "A proxy that opens TLS and holds answers back may do that: ask who runs it; else look at the server's log.",
  },
  not_admitted: {
    says: "The server is reached, and does not let this agent in: {by}.",
    next: 'That sentence is the server\'s own: do what it names (more in docs/errors.md), or ask whoever runs the server; its log has the same as "agent refused".',
  },
  certificate_unseen: {
    isSlow: true,
    label: "unauthenticated",
    says: "The server behind {by} has not seen the agent's certificate: most likely somebody in front of it opens TLS, with a certificate that --ca-cert knows.",
    next: "Give the CA of whoever opens TLS (the step tls names it) as --outer-ca and only the server's own as --ca-cert, and the server --inner-tls=auto; where both are of one CA, --inner-tls=always here. Or have TLS passed through unopened.",
  },
  inner_tls_off: {
    says: "The server at {by} takes no inner TLS from agents of this cluster, and this agent can do without it only where nothing opens TLS on the way.",
    next: "Ask whoever runs the server for --inner-tls=auto, or innerTls: auto under agents in the cluster's document; or the network team to exempt the server from TLS inspection, with --inner-tls=auto here.",
  },
  inner_tls: {
    says: "The WebSocket to {by} comes up, but not the inner TLS over it.",
    next: "See the detail above. Whatever opens TLS on the way may change or hold back what passes: ask who runs it; else look at the server's log.",
  },
  held_back: {
    says: "The WebSocket comes up, but what is sent over it does not arrive in time: something in between holds bytes back, or the server hangs.",
    next: "Ask whoever runs the proxy or balancer to turn buffering off for the server.",
  },
} as const satisfies Record<string, FaultRow>;
