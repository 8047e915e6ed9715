import type { FaultFacts, FaultRow, FaultText } from "./fault-row.ts";

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

/** Faults of TLS without a certificate, of the upgrade and of the tunnel. */
export const TUNNEL_FAULTS = {
  unknown_name: {
    retry: "soon",
    label: "failed",
    explain: ({ by }) => ({
      sentence: `Whoever answers for ${by} knows no server of that name (SNI).`,
      next: "Correct the name in --server, or add it to the server's cluster (agents.sni) or to the router's routes.",
    }),
  },
  no_tls: {
    retry: "soon",
    label: "failed",
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
    retry: "soon",
    label: "failed",
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
    retry: "soon",
    label: "failed",
    explain: ({ by }) => ({
      sentence: `What answers at ${by} looks like konnectivity-server, or another server of gRPC, and not like culvert.`,
      next: "Correct host and port in --server: agents of culvert and of Konnectivity cannot be mixed (docs/konnectivity.md). If a culvert server is there, something in between lets no WebSockets through: ask who runs it, and look at the server's log.",
    }),
  },
  upgrade_stripped: {
    retry: "soon",
    explain: () => ({
      sentence: "The server is reached, but not the WebSocket upgrade: something in between takes it away.",
      next: "Ask whoever runs the proxy or balancer to pass WebSocket upgrades to the server, or to leave its TLS unopened.",
    }),
  },
  web_page: {
    retry: "soon",
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
    retry: "soon",
    explain: () => ({
      sentence: "The request is sent elsewhere: a portal that wants a login, or another server behind that name.",
      next: "Open the URL of --server with https:// in a browser from here, and see who it is.",
    }),
  },
  gateway: {
    retry: "soon",
    explain: () => ({
      sentence: "A proxy or balancer in between answers that it has no server behind it.",
      next: "See whether the server runs, and whether the balancer sends WebSockets to its port for agents; to a port without TLS, whether its address is one of --agent-insecure-trusted-cidrs (the server's log says whom it cut).",
    }),
  },
  wrong_path: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `There is a server, but nothing at the path ${by}.`,
      next: "Use the server's --agent-path in --server, /culvert/v1/tunnel unless it is configured.",
    }),
  },
  callers_port: {
    retry: "slow",
    explain: ({ by }) => ({
      sentence: `${by} is the server's port for callers (CONNECT), not the one for agents.`,
      next: "Correct the port in --server: agents come to the server's --agent-port.",
    }),
  },
  no_answer: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `TLS with ${by} stands, but the WebSocket does not come up.`,
      next: "A proxy that opens TLS and holds answers back may do that: ask who runs it; else look at the server's log.",
    }),
  },
  not_admitted: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `The server is reached, and does not let this agent in: ${by}.`,
      next: 'That sentence is the server\'s own: do what it names (more in docs/errors.md), or ask whoever runs the server; its log has the same as "agent refused".',
    }),
  },
  certificate_unseen: {
    retry: "slow",
    label: "unauthenticated",
    explain: ({ by }) => ({
      sentence: `The server behind ${by} has not seen the agent's certificate: most likely somebody in front of it opens TLS, with a certificate that --ca-cert knows.`,
      next: "Give the CA of whoever opens TLS (the step tls names it) as --outer-ca and only the server's own as --ca-cert, and the server --inner-tls=auto; where both are of one CA, --inner-tls=always here. Or have TLS passed through unopened.",
    }),
  },
  inner_tls_off: {
    retry: "soon",
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
    retry: "soon",
    label: "failed",
    explain: ({ by }) => ({
      sentence: `The WebSocket to ${by} comes up, but not the inner TLS over it.`,
      next: "See the detail above. Whatever opens TLS on the way may change or hold back what passes: ask who runs it; else look at the server's log.",
    }),
  },
  lost: {
    retry: "soon",
    label: "failed",
    explain: () => ({
      sentence: "The tunnel comes up, and is lost at once.",
      next: "Something on the way cuts WebSockets; ask who runs the proxy or balancer, and look at the server's log.",
    }),
  },
  held_back: {
    retry: "soon",
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
