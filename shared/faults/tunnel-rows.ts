import { type CaRelation, type FaultFacts, type FaultRow, type FaultText, minuteOf } from "./fault-row.ts";

/** By how the certificate relates to --ca-cert. Interception comes second: nothing but the unknown CA indicates it. */
const UNKNOWN_CA_TEXTS: Readonly<Record<CaRelation, (by: string) => FaultText>> = {
  none_given: (by) => ({
    sentence: `The server's certificate is signed by "${by}", which is not in --ca-cert (none was given).`,
    next: `If "${by}" is the server's CA, give its certificate as --ca-cert. If it is not, something on the path opens TLS (see --outer-ca), or another server answers.`,
  }),
  another: (by) => ({
    sentence: `The server's certificate is signed by "${by}", which is not in --ca-cert.`,
    next: `If "${by}" is the server's CA for agents, give its certificate as --ca-cert. If it is not, check the port in --server, the one for agents; else something on the path opens TLS (see --outer-ca).`,
  }),
  same_name: (by) => ({
    sentence: `The server's certificate is signed by another CA than the one in --ca-cert: same name ("${by}"), another key.`,
    next: "Copy the CA file that belongs to the server's --cluster-cert to --ca-cert: each run of culvert pki makes another CA of the same name.",
  }),
  self_signed: (by) => ({
    sentence: `The server's certificate "${by}" has signed itself, and is not in --ca-cert.`,
    next: "If it is the server's, give it as --ca-cert, or issue the server's --cluster-cert by a CA. If it is not, something on the path opens TLS, or another server answers.",
  }),
};

const INNER_WORDS: Readonly<Record<CaRelation, (by: string) => string>> = {
  none_given: (by) => `signed by "${by}", which is not in --ca-cert (none was given)`,
  another: (by) => `signed by "${by}", which is not in --ca-cert`,
  same_name: (by) => `of another CA than the one in --ca-cert: same name ("${by}"), another key`,
  self_signed: (by) => `signed by nobody but "${by}" itself, which is not in --ca-cert`,
};

const ASK_FOR_A_CERTIFICATE =
  "Ask the network team, who run what opens TLS, for a certificate that can be used; or to exempt the server from TLS inspection.";

export const CAPTIVE_PORTAL_CURE =
  "log in from this machine with a browser that goes through it, or ask its administrators to let this machine pass without";

/** A captive portal: the agent meets it in the proxy's answer to CONNECT or in place of TLS, and says the same. */
export function captivePortalAt(proxy: string): string {
  return `the proxy ${proxy} shows a web page in place of the server, most likely a login (a captive portal)`;
}

/** The proxy opened a connection, perhaps to the server: bytes that are no TLS name nobody. */
export function noTlsBehind(proxy: string): string {
  return `the proxy ${proxy} has opened the connection, and what answers there speaks no TLS: the port in --server may be a wrong one, or the proxy shows a page of its own (a login)`;
}

const ASK_FOR_INNER_TLS =
  "Ask whoever runs the server for --inner-tls=auto, or innerTls: auto under agents in the cluster's document";

/** A TLS handshake that failed without a certificate to blame, by how it ended. */
const HANDSHAKE_TEXTS: Readonly<Record<NonNullable<FaultFacts["handshake"]> | "refused", (by: string) => FaultText>> = {
  cut: (by) => ({
    sentence: `What answers at ${by} closes the connection in the TLS handshake.`,
    next: "See whether the server runs: a router or balancer that reaches none cuts connections so. Then look at its log: one that has no file descriptors left cuts them, too, and says it there. If it knows nothing of this, a firewall that reads server names may do that: ask the network team.",
  }),
  silent: (by) => ({
    sentence: `TCP to ${by} stands, and nobody answers the TLS handshake.`,
    next: "Check the port in --server, and whether the server is well: its health port, its log. If it is, a firewall that reads server names may swallow the handshake: ask the network team.",
  }),
  refused: (by) => ({
    sentence: `The TLS handshake with ${by} fails.`,
    next: "The detail above is what TLS says of it: a version, a cipher or a certificate that one end does not take. Compare --tls-min-version and --cipher-suites of both ends, and look at the server's log.",
  }),
};

/** Faults of TLS, of the upgrade and of the tunnel. */
export const TUNNEL_FAULTS = {
  unknown_ca: {
    explain: ({ by, relation = "another" }) => UNKNOWN_CA_TEXTS[relation](by),
  },
  intercepted: {
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}": the certificate that comes is not signed by the server's CA.`,
      next: `Ask the network team to exempt the server from TLS inspection, or go through it: --outer-ca here with the CA certificate of "${by}", --inner-tls=auto at the server. If "${by}" is the server's own CA, give it as --ca-cert, and check that the port in --server is the one for agents.`,
    }),
  },
  outer_ca: {
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}", whom neither --ca-cert nor --outer-ca knows.`,
      next: `Ask the network team for the CA certificate of "${by}", and give it as --outer-ca, beside what is there; or to exempt the server from TLS inspection. If "${by}" is the server's own CA, give it as --ca-cert.`,
    }),
  },
  inner_tls_never: {
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}", and this agent may not go through that: --inner-tls=never is set here.`,
      next: `Set --inner-tls=auto here, with the CA certificate of "${by}" as --outer-ca; the server needs --inner-tls=auto, too. Or ask the network team to exempt the server from TLS inspection.`,
    }),
  },
  inner_untrusted: {
    explain: ({ by, openedBy, relation = "another" }) => ({
      sentence: `The certificate shown inside inner TLS is ${INNER_WORDS[relation](by)}${openedBy === undefined ? "" : `, while "${openedBy}" opens TLS on the way`}.`,
      next: `If "${by}" is the server's CA for agents, give its present certificate as --ca-cert. If it is not, somebody in between plays the server: tell the network team.`,
    }),
  },
  server_expired: {
    explain: ({ by, validTo }) => ({
      sentence: `The certificate of ${by} expired on ${minuteOf(validTo)}.`,
      next: "Renew it at the server (--cluster-cert), or at the balancer before it.",
    }),
    opened: ({ by, openedBy, validTo }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and the certificate that it shows in place of ${by} expired on ${minuteOf(validTo)}.`,
      next: ASK_FOR_A_CERTIFICATE,
    }),
  },
  server_not_yet_valid: {
    explain: ({ by, validFrom, isClockRight }) =>
      isClockRight
        ? {
            sentence: `The certificate of ${by} is not valid before ${minuteOf(validFrom)}, and this machine's clock agrees with the server's.`,
            next: "Issue the server's --cluster-cert again with an earlier beginning, or wait until then.",
          }
        : {
            sentence: `The certificate of ${by} is not valid before ${minuteOf(validFrom)}: is this machine's clock behind?`,
            next: "Compare this machine's clock with another one, and set it; if it is right, issue the server's --cluster-cert again.",
          },
    opened: ({ by, openedBy, validFrom, isClockRight }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and what it shows in place of ${by} is not valid before ${minuteOf(validFrom)}.`,
      next: isClockRight
        ? ASK_FOR_A_CERTIFICATE
        : `Compare this machine's clock with another one, and set it. ${ASK_FOR_A_CERTIFICATE}`,
    }),
  },
  wrong_name: {
    explain: ({ by, names }) => ({
      sentence:
        names === undefined
          ? `The server's certificate has no name in it, and so not ${by}.`
          : `The server's certificate is for ${names}, not for ${by}.`,
      next: `Name the server in --server as its certificate does (--server-address says where to dial instead), or issue the server's --cluster-cert for ${by} too.`,
    }),
    opened: ({ by, openedBy, names = "nobody" }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and the certificate that it shows is for ${names}, not for ${by}.`,
      next: `Correct the name in --server, if it is wrong. ${ASK_FOR_A_CERTIFICATE}`,
    }),
  },
  wrong_usage: {
    explain: ({ by, isClients }) => ({
      sentence: `The certificate of ${by} ${isClients ? "is a client's: its extended key usage has no serverAuth" : "may not be used by a server: its usage does not allow it"}.`,
      next: "Issue the server's --cluster-cert again, with serverAuth in its extended key usage and digitalSignature in its key usage.",
    }),
    opened: ({ by, openedBy }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and the certificate that it shows in place of ${by} is not a server's.`,
      next: ASK_FOR_A_CERTIFICATE,
    }),
  },
  unknown_name: {
    explain: ({ by }) => ({
      sentence: `Whoever answers for ${by} knows no server of that name (SNI).`,
      next: "Correct the name in --server, or add it to the server's cluster (agents.sni) or to the router's routes.",
    }),
  },
  no_tls: {
    explain: ({ by }) => ({
      sentence: `What answers at ${by} does not speak TLS.`,
      next: "Check the port in --server: is it the server's port for agents?",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `${capital(noTlsBehind(by))}.`,
      next: `Check the port in --server: is it the server's port for agents? If it is, it is the proxy: ${CAPTIVE_PORTAL_CURE}; ${proxyFrom} names it.`,
    }),
  },
  tls: {
    explain: ({ by, handshake }) => HANDSHAKE_TEXTS[handshake ?? "refused"](by),
    viaProxy: ({ by, proxyFrom, handshake }) =>
      handshake === "silent"
        ? {
            sentence: `The proxy ${by} has opened the connection, and nobody answers the TLS handshake over it: the proxy swallows it or leads nowhere, or the server behind it hangs.`,
            next: `Ask the proxy's operators whether it reaches the server's host and port (${proxyFrom} names it); check the port in --server, and whether the server is well: its health port, its log.`,
          }
        : {
            sentence: `The proxy ${by} has opened the connection, and the TLS handshake over it is cut: the proxy may let no TLS to the server through, or what answers behind it is not the server.`,
            next: `Ask the proxy's operators whether they let TLS to the server's host and port pass (${proxyFrom} names it); check the port in --server, and look at the server's log.`,
          },
  },
  grpc_server: {
    explain: ({ by }) => ({
      sentence: `What answers at ${by} looks like konnectivity-server, or another server of gRPC, and not like culvert.`,
      next: "Correct host and port in --server: agents of culvert and of Konnectivity cannot be mixed (docs/konnectivity.md). If a culvert server is there, something in between lets no WebSockets through: ask who runs it, and look at the server's log.",
    }),
  },
  upgrade_stripped: {
    explain: () => ({
      sentence: "The server is reached, but not the WebSocket upgrade: something in between takes it away.",
      next: "Ask whoever runs the proxy or balancer to pass WebSocket upgrades to the server, or to leave its TLS unopened.",
    }),
  },
  web_page: {
    explain: () => ({
      sentence:
        "A web page comes in place of the tunnel: from a login portal, a proxy that takes upgrades away, a balancer that knows no such path, or another server.",
      next: "Check host, port and path in --server. Open the URL of --server with https:// in a browser from here, and see who it is.",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `${capital(captivePortalAt(by))}.`,
      next: `${capital(CAPTIVE_PORTAL_CURE)}; ${proxyFrom} names it.`,
    }),
  },
  redirected: {
    explain: () => ({
      sentence: "The request is sent elsewhere: a portal that wants a login, or another server behind that name.",
      next: "Open the URL of --server with https:// in a browser from here, and see who it is.",
    }),
  },
  gateway: {
    explain: () => ({
      sentence: "A proxy or balancer in between answers that it has no server behind it.",
      next: "See whether the server runs, and whether the balancer sends WebSockets to its port for agents; to a port without TLS, whether its address is one of --agent-insecure-trusted-cidrs (the server's log says whom it cut).",
    }),
  },
  wrong_path: {
    explain: ({ by }) => ({
      sentence: `There is a server, but nothing at the path ${by}.`,
      next: "Use the server's --agent-path in --server, /culvert/v1/tunnel unless it is configured.",
    }),
  },
  callers_port: {
    isSlow: true,
    explain: ({ by }) => ({
      sentence: `${by} is the server's port for callers (CONNECT), not the one for agents.`,
      next: "Correct the port in --server: agents come to the server's --agent-port.",
    }),
  },
  no_answer: {
    explain: ({ by }) => ({
      sentence: `TLS with ${by} stands, but the WebSocket does not come up.`,
      next: "A proxy that opens TLS and holds answers back may do that: ask who runs it; else look at the server's log.",
    }),
  },
  not_admitted: {
    explain: ({ by }) => ({
      sentence: `The server is reached, and does not let this agent in: ${by}.`,
      next: 'That sentence is the server\'s own: do what it names (more in docs/errors.md), or ask whoever runs the server; its log has the same as "agent refused".',
    }),
  },
  certificate_unseen: {
    isSlow: true,
    label: "unauthenticated",
    explain: ({ by }) => ({
      sentence: `The server behind ${by} has not seen the agent's certificate: most likely somebody in front of it opens TLS, with a certificate that --ca-cert knows.`,
      next: "Give the CA of whoever opens TLS (the step tls names it) as --outer-ca and only the server's own as --ca-cert, and the server --inner-tls=auto; where both are of one CA, --inner-tls=always here. Or have TLS passed through unopened.",
    }),
  },
  inner_tls_off: {
    explain: ({ by }) => ({
      sentence: `This agent wants inner TLS (--inner-tls=always), and the server at ${by} does not take it from agents of this cluster.`,
      next: `${ASK_FOR_INNER_TLS}; or set --inner-tls=auto here.`,
    }),
    opened: ({ by, openedBy }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and the server at ${by} takes no inner TLS from agents of this cluster: nothing else leads through.`,
      next: `${ASK_FOR_INNER_TLS}; or the network team to exempt the server from TLS inspection.`,
    }),
  },
  inner_tls: {
    explain: ({ by }) => ({
      sentence: `The WebSocket to ${by} comes up, but not the inner TLS over it.`,
      next: "See the detail above. Whatever opens TLS on the way may change or hold back what passes: ask who runs it; else look at the server's log.",
    }),
  },
  held_back: {
    explain: () => ({
      sentence:
        "The WebSocket comes up, but what is sent over it does not arrive in time: something in between holds bytes back, or the server hangs.",
      next: "Ask whoever runs the proxy or balancer to turn buffering off for the server.",
    }),
  },
} as const satisfies Record<string, FaultRow>;

function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
