import { CAPTIVE_PORTAL_CURE, captivePortalAt, noTlsBehind } from "../../shared/http/response-fields.ts";
import { CERTIFICATE_ROWS, OPENED_CERTIFICATE_ROWS } from "./certificate-rows.ts";
import { HANDSHAKE_ROWS, type Row } from "./handshake-rows.ts";
import { date, type Found } from "./row-words.ts";
import type { Culprit, Finding } from "./steps.ts";

/** What is said of a finding: in one sentence who is in the way, and what to do about it. */
export function rowOf(finding: Found): Row {
  const { culprit, proxyFrom, openedBy, isOfScript } = finding;
  const scriptCure = isOfScript ? SCRIPT_CURES[culprit] : undefined;
  if (scriptCure !== undefined) return scriptRow(finding, scriptCure);
  return (
    (proxyFrom === undefined ? undefined : PROXY_ROWS[culprit]?.(finding)) ??
    (openedBy === undefined ? undefined : OPENED_ROWS[culprit]?.({ ...finding, openedBy })) ??
    ROWS[culprit](finding)
  );
}

export const SET_THE_CLOCK =
  "Set this machine's clock (NTP, or chrony), or the server's if it is that one that is wrong.";

const ASK_FOR_INNER_TLS =
  "Ask whoever runs the server for --inner-tls=auto, or innerTls: auto under agents in the cluster's document";
/** Where it is not the server's certificate, but that of whoever opens TLS on the way. */
const OPENED_ROWS: Partial<Record<Culprit, (finding: Found & { readonly openedBy: string }) => Row>> = {
  ...OPENED_CERTIFICATE_ROWS,
  inner_tls_off: ({ by, openedBy }) => ({
    sentence: `TLS is opened on the way by "${openedBy}", and the server at ${by} takes no inner TLS from agents of this cluster: nothing else leads through.`,
    next: `${ASK_FOR_INNER_TLS}; or the network team to exempt the server from TLS inspection.`,
  }),
};

/** The network, where it is the way to a proxy; and what comes through one in place of TLS. */
const PROXY_ROWS: Partial<Record<Culprit, (finding: Found) => Row>> = {
  dns: ({ by, proxyFrom }) => ({
    sentence: `The name of the proxy ${by} does not resolve here.`,
    next: `Correct ${proxyFrom}, which names it, or this machine's name servers.`,
  }),
  refused: ({ by, proxyFrom }) => ({
    sentence: `There is no proxy at ${by}: the connection is refused.`,
    next: `Correct host and port in ${proxyFrom}, which names it, or ask whether the proxy runs.`,
  }),
  timeout: ({ by, proxyFrom }) => ({
    sentence: `The proxy ${by} does not answer: packets to it are swallowed, or it hangs.`,
    next: `Correct ${proxyFrom}, which names it, or ask the network team whether this machine may use it.`,
  }),
  unreachable: ({ by, proxyFrom }) => ({
    sentence: `There is no way from here to the proxy ${by}.`,
    next: `Correct ${proxyFrom}, which names it, or this machine's routes.`,
  }),
  closed: ({ by, proxyFrom }) => ({
    sentence: `The proxy ${by} closes the connection without a word.`,
    next: `Ask whether it takes connections of this machine; ${proxyFrom} names it.`,
  }),
  web_page: ({ by, proxyFrom }) => ({
    sentence: `${capital(captivePortalAt(by))}.`,
    next: `${capital(CAPTIVE_PORTAL_CURE)}; ${proxyFrom} names it.`,
  }),
  no_tls: ({ by, proxyFrom }) => ({
    sentence: `${capital(noTlsBehind(by))}.`,
    next: `Check the port in --server: is it the server's port for agents? If it is, it is the proxy: ${CAPTIVE_PORTAL_CURE}; ${proxyFrom} names it.`,
  }),
  tls: ({ by, proxyFrom, handshake }) =>
    handshake === "silent"
      ? {
          sentence: `The proxy ${by} has opened the connection, and nobody answers the TLS handshake over it: the proxy swallows it or leads nowhere, or the server behind it hangs.`,
          next: `Ask the proxy's operators whether it reaches the server's host and port (${proxyFrom} names it); check the port in --server, and whether the server is well: its health port, its log.`,
        }
      : {
          sentence: `The proxy ${by} has opened the connection, and the TLS handshake over it is cut: the proxy may let no TLS to the server through, or what answers behind it is not the server.`,
          next: `Ask the proxy's operators whether they let TLS to the server's host and port pass (${proxyFrom} names it); check the port in --server, and look at the server's log.`,
        },
};

const SCRIPT_SERVER_CURE =
  "Correct host and port in --pac, or see whether the server that has the script runs and is reached from this machine: a script is fetched directly, through no proxy.";

/** The network, where it is the way to the script of --pac. */
const SCRIPT_CURES: Partial<Record<Culprit, string>> = {
  dns: "Correct the host in --pac, or this machine's name servers: a script is fetched directly, through no proxy.",
  refused: SCRIPT_SERVER_CURE,
  unreachable: SCRIPT_SERVER_CURE,
  closed: SCRIPT_SERVER_CURE,
  timeout: `${SCRIPT_SERVER_CURE} A file may be on a network drive that hangs.`,
};

function scriptRow({ by }: Finding, cure: string): Row {
  return { sentence: `The script of --pac cannot be had: ${by}.`, next: `${cure} Or name the proxy by --proxy.` };
}

const ROWS: Readonly<Record<Culprit, (finding: Found) => Row>> = {
  configuration: ({ by }) => ({
    sentence: `Something in the configuration cannot be used: ${by}.`,
    next: "Mend the file, or the option that names it.",
  }),
  no_credential: () => ({
    sentence: "The agent has no credential: neither a certificate nor a token is given, so no server can know it.",
    next: "Give --agent-cert and --agent-key, or --service-account-token-path.",
  }),
  agent_expired: ({ by, validTo }) => ({
    sentence: `The agent's certificate ${by} expired on ${date(validTo)}.`,
    next: "Renew it: a running agent reads the file again by itself.",
  }),
  agent_not_yet_valid: ({ by, validFrom, isClockRight }) =>
    isClockRight
      ? {
          sentence: `The agent's certificate ${by} is not valid before ${date(validFrom)}, and this machine's clock agrees with the server's.`,
          next: "Issue --agent-cert again with an earlier beginning, or wait until then.",
        }
      : {
          sentence: `The agent's certificate ${by} is not valid before ${date(validFrom)}: is this machine's clock behind?`,
          next: "Compare this machine's clock with another one, and set it; if it is right, issue --agent-cert again.",
        },
  token_expired: ({ by, validTo }) => ({
    sentence: `The token ${by} expired on ${date(validTo)}.`,
    next: "Give the file that Kubernetes renews (a projected volume), not a copy of it.",
  }),
  ca_expired: ({ by, validTo }) => ({
    sentence: `The CA certificate ${by} expired on ${date(validTo)}: whoever it has signed proves nothing by it.`,
    next: "Give the CA's present certificate in that file: a running agent reads it again by itself.",
  }),
  clock: ({ by }) => ({
    sentence: `The clock of this machine is ${by}.`,
    next: SET_THE_CLOCK,
  }),

  dns: ({ by }) => ({
    sentence: `The server's name does not resolve here (${by}).`,
    next: "Correct --server or this machine's name servers; where only a proxy resolves outside names, give it as --proxy: http://, https:// and socks5h:// leave names to it, socks5:// does not.",
  }),
  refused: ({ by }) => ({
    sentence: `${by} refuses the connection: no server listens there, or a firewall answers in its place.`,
    next: "Check the port in --server, and whether the server or its balancer runs; else a --proxy may be the way out.",
  }),
  unreachable: ({ by }) => ({
    sentence: `There is no way from here to ${by}.`,
    next: "Check this machine's routes and firewall; where only a proxy leads out, give it as --proxy.",
  }),
  timeout: ({ by }) => ({
    sentence: `${by} does not answer: a firewall swallows what is sent there.`,
    next: "Ask the network team to let TCP connections to it out, or for the proxy to use (--proxy).",
  }),
  closed: ({ by }) => ({
    sentence: `${by} breaks the connection off without a word.`,
    next: "Check the port in --server, and see whether the server runs: a router or balancer that reaches none cuts connections so, and so does a server that has no file descriptors left (its log says it). Else a firewall may do it: ask the network team.",
  }),

  proxy_auth_required: ({ by }) => ({
    sentence: `The proxy ${by} wants to know who asks, and no user and password are given for it.`,
    next: "Give them by --proxy-credentials-file, or user:password@ in the proxy's URL.",
  }),
  proxy_auth_refused: ({ by }) => ({
    sentence: `The proxy ${by} does not take the user and password that are given for it.`,
    next: "Correct them before trying again: many wrong ones may lock the account.",
  }),
  proxy_auth_unsupported: ({ by }) => ({
    sentence: `The proxy ${by} asks for a kind of login that is not to be had with what is given.`,
    next: "See the detail above; for NTLM alone, a local helper such as px or cntlm stands between.",
  }),
  proxy_auth_withheld: ({ by, proxyFrom = "--pac" }) => ({
    sentence: `The proxy ${by} wants to know who asks, and is not told: ${proxyFrom} names it, a script that was fetched without TLS, so anybody on the path may have named another proxy.`,
    next: "Name the proxy by --proxy, or give the script in --pac by an https:// URL or as a file.",
  }),
  proxy_silent: ({ by, proxyFrom = "--proxy" }) => ({
    sentence: `The proxy ${by} takes the connection and does not answer: it does not reach the server, or is of another kind than its URL says.`,
    next: `Ask its operators whether it resolves and reaches the server's host and port, and works at all; or correct scheme and port in ${proxyFrom}, which names it.`,
  }),
  kdc_silent: ({ by }) => ({
    sentence: `The proxy ${by} wants a Kerberos ticket, and none came in time: the KDC, which gives tickets, does not answer this machine.`,
    next: "Check that this machine reaches the KDC (krb5.conf or DNS names it; port 88, UDP and TCP), and that it runs. KRB5_TRACE=/dev/stderr kinit (with a keytab: kinit -k -t FILE), as the agent's user and with its environment, shows whom it asks in vain.",
  }),
  proxy_closed: ({ by }) => ({
    sentence: `The proxy ${by} closes the connection instead of answering.`,
    next: "Look at the proxy's log: it may forbid the port, or want a login that it does not ask for.",
  }),
  proxy_forbidden: ({ by }) => ({
    sentence: `The proxy ${by} does not let connections to the server through.`,
    next: "Ask its operators to allow CONNECT to the server's host and port.",
  }),
  proxy_unavailable: ({ by }) => ({
    sentence: `The proxy ${by} cannot reach the server, or has no time.`,
    next: "Ask its operators whether it can resolve and reach the server's host and port.",
  }),
  proxy_tls: ({ by }) => ({
    sentence: `TLS with the proxy ${by} itself fails.`,
    next: "See the detail above. Is it an https:// proxy at all? Is it called by a name that is in its certificate? If that comes from a CA of your own, give it as --proxy-ca.",
  }),
  proxy_protocol: ({ by }) => ({
    sentence: `What listens at ${by} is no proxy of the kind that is named.`,
    next: "Correct scheme, host and port of the proxy.",
  }),

  pac: ({ by }) => ({
    sentence: `The script of --pac gives no way out: ${by}.`,
    next: "Correct --pac or the script, or name the proxy by --proxy.",
  }),

  ...CERTIFICATE_ROWS,
  unknown_name: ({ by }) => ({
    sentence: `Whoever answers for ${by} knows no server of that name (SNI).`,
    next: "Correct the name in --server, or add it to the server's cluster (agents.sni) or to the router's routes.",
  }),
  no_tls: ({ by }) => ({
    sentence: `What answers at ${by} does not speak TLS.`,
    next: "Check the port in --server: is it the server's port for agents?",
  }),
  tls: ({ by, handshake }) => HANDSHAKE_ROWS[handshake ?? "refused"](by),

  grpc_server: ({ by }) => ({
    sentence: `What answers at ${by} looks like konnectivity-server, or another server of gRPC, and not like culvert.`,
    next: "Correct host and port in --server: agents of culvert and of Konnectivity cannot be mixed (docs/konnectivity.md). If a culvert server is there, something in between lets no WebSockets through: ask who runs it, and look at the server's log.",
  }),

  upgrade_stripped: () => ({
    sentence: "The server is reached, but not the WebSocket upgrade: something in between takes it away.",
    next: "Ask whoever runs the proxy or balancer to pass WebSocket upgrades to the server, or to leave its TLS unopened.",
  }),
  web_page: () => ({
    sentence:
      "A web page comes in place of the tunnel: from a login portal, a proxy that takes upgrades away, a balancer that knows no such path, or another server.",
    next: "Check host, port and path in --server. Open the URL of --server with https:// in a browser from here, and see who it is.",
  }),
  redirected: () => ({
    sentence: "The request is sent elsewhere: a portal that wants a login, or another server behind that name.",
    next: "Open the URL of --server with https:// in a browser from here, and see who it is.",
  }),
  gateway: () => ({
    sentence: "A proxy or balancer in between answers that it has no server behind it.",
    next: "See whether the server runs, and whether the balancer sends WebSockets to its port for agents; to a port without TLS, whether its address is one of --agent-insecure-trusted-cidrs (the server's log says whom it cut).",
  }),
  wrong_path: ({ by }) => ({
    sentence: `There is a server, but nothing at the path ${by}.`,
    next: "Use the server's --agent-path in --server, /culvert/v1/tunnel unless it is configured.",
  }),
  callers_port: ({ by }) => ({
    sentence: `${by} is the server's port for callers (CONNECT), not the one for agents.`,
    next: "Correct the port in --server: agents come to the server's --agent-port.",
  }),
  no_answer: ({ by }) => ({
    sentence: `TLS with ${by} stands, but the WebSocket does not come up.`,
    next: "A proxy that opens TLS and holds answers back may do that: ask who runs it; else look at the server's log.",
  }),
  not_admitted: ({ by }) => ({
    sentence: `The server is reached, and does not let this agent in: ${by}.`,
    next: 'That sentence is the server\'s own: do what it names (more in docs/errors.md), or ask whoever runs the server; its log has the same as "agent refused".',
  }),
  certificate_unseen: ({ by }) => ({
    sentence: `The server behind ${by} has not seen the agent's certificate: most likely somebody in front of it opens TLS, with a certificate that --ca-cert knows.`,
    next: "Give the CA of whoever opens TLS (the step tls names it) as --outer-ca and only the server's own as --ca-cert, and the server --inner-tls=auto; where both are of one CA, --inner-tls=always here. Or have TLS passed through unopened.",
  }),
  inner_tls_off: ({ by }) => ({
    sentence: `This agent wants inner TLS (--inner-tls=always), and the server at ${by} does not take it from agents of this cluster.`,
    next: `${ASK_FOR_INNER_TLS}; or set --inner-tls=auto here.`,
  }),
  inner_tls: ({ by }) => ({
    sentence: `The WebSocket to ${by} comes up, but not the inner TLS over it.`,
    next: "See the detail above. Whatever opens TLS on the way may change or hold back what passes: ask who runs it; else look at the server's log.",
  }),
  lost: () => ({
    sentence: "The tunnel comes up, and is lost at once.",
    next: "Something on the way cuts WebSockets; ask who runs the proxy or balancer, and look at the server's log.",
  }),
  held_back: () => ({
    sentence:
      "The WebSocket comes up, but what is sent over it does not arrive in time: something in between holds bytes back, or the server hangs.",
    next: "Ask whoever runs the proxy or balancer to turn buffering off for the server.",
  }),
};

function capital(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
