import { type FaultRow, minuteOf } from "./fault-row.ts";

export const SET_THE_CLOCK =
  "Set this machine's clock (NTP, or chrony), or the server's if it is that one that is wrong.";

const SCRIPT_SERVER =
  "Correct host and port in --pac, or see whether the server that has the script runs and is reached from this machine: a script is fetched directly, through no proxy.";

/** Faults of the agent's own files and clock, of the network and of proxies. */
export const NETWORK_FAULTS = {
  configuration: {
    explain: ({ by }) => ({
      sentence: `Something in the configuration cannot be used: ${by}.`,
      next: "Mend the file, or the option that names it.",
    }),
  },
  no_credential: {
    explain: () => ({
      sentence: "The agent has no credential: neither a certificate nor a token is given, so no server can know it.",
      next: "Give --agent-cert and --agent-key, or --service-account-token-path.",
    }),
  },
  agent_expired: {
    explain: ({ by, validTo }) => ({
      sentence: `The agent's certificate ${by} expired on ${minuteOf(validTo)}.`,
      next: "Renew it: a running agent reads the file again by itself.",
    }),
  },
  agent_not_yet_valid: {
    explain: ({ by, validFrom, isClockRight }) =>
      isClockRight
        ? {
            sentence: `The agent's certificate ${by} is not valid before ${minuteOf(validFrom)}, and this machine's clock agrees with the server's.`,
            next: "Issue --agent-cert again with an earlier beginning, or wait until then.",
          }
        : {
            sentence: `The agent's certificate ${by} is not valid before ${minuteOf(validFrom)}: is this machine's clock behind?`,
            next: "Compare this machine's clock with another one, and set it; if it is right, issue --agent-cert again.",
          },
  },
  token_expired: {
    explain: ({ by, validTo }) => ({
      sentence: `The token ${by} expired on ${minuteOf(validTo)}.`,
      next: "Give the file that Kubernetes renews (a projected volume), not a copy of it.",
    }),
  },
  ca_expired: {
    explain: ({ by, validTo }) => ({
      sentence: `The CA certificate ${by} expired on ${minuteOf(validTo)}: whoever it has signed proves nothing by it.`,
      next: "Give the CA's present certificate in that file: a running agent reads it again by itself.",
    }),
  },
  clock: {
    explain: ({ by }) => ({
      sentence: `The clock of this machine is ${by}.`,
      next: SET_THE_CLOCK,
    }),
  },
  dns: {
    explain: ({ by }) => ({
      sentence: `The server's name does not resolve here (${by}).`,
      next: "Correct --server or this machine's name servers; where only a proxy resolves outside names, give it as --proxy: http://, https:// and socks5h:// leave names to it, socks5:// does not.",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `The name of the proxy ${by} does not resolve here.`,
      next: `Correct ${proxyFrom}, which names it, or this machine's name servers.`,
    }),
    scriptNext:
      "Correct the host in --pac, or this machine's name servers: a script is fetched directly, through no proxy.",
  },
  refused: {
    explain: ({ by }) => ({
      sentence: `${by} refuses the connection: no server listens there, or a firewall answers in its place.`,
      next: "Check the port in --server, and whether the server or its balancer runs; or use --proxy.",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `There is no proxy at ${by}: the connection is refused.`,
      next: `Correct host and port in ${proxyFrom}, which names it, or ask whether the proxy runs.`,
    }),
    scriptNext: SCRIPT_SERVER,
  },
  unreachable: {
    explain: ({ by }) => ({
      sentence: `There is no way from here to ${by}.`,
      next: "Check this machine's routes and firewall; where only a proxy leads out, give it as --proxy.",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `There is no way from here to the proxy ${by}.`,
      next: `Correct ${proxyFrom}, which names it, or this machine's routes.`,
    }),
    scriptNext: SCRIPT_SERVER,
  },
  timeout: {
    explain: ({ by }) => ({
      sentence: `${by} does not answer: a firewall swallows what is sent there.`,
      next: "Ask the network team to let TCP connections to it out, or for the proxy to use (--proxy).",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `The proxy ${by} does not answer: packets to it are swallowed, or it hangs.`,
      next: `Correct ${proxyFrom}, which names it, or ask the network team whether this machine may use it.`,
    }),
    scriptNext: `${SCRIPT_SERVER} A file may be on a network drive that hangs.`,
  },
  closed: {
    explain: ({ by }) => ({
      sentence: `${by} breaks the connection off without a word.`,
      next: "Check the port in --server, and see whether the server runs: a router or balancer that reaches none cuts connections so, and so does a server that has no file descriptors left (its log says it). Else a firewall may do it: ask the network team.",
    }),
    viaProxy: ({ by, proxyFrom }) => ({
      sentence: `The proxy ${by} closes the connection without a word.`,
      next: `Ask whether it takes connections of this machine; ${proxyFrom} names it.`,
    }),
    scriptNext: SCRIPT_SERVER,
  },
  proxy_auth_required: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} wants to know who asks, and no user and password are given for it.`,
      next: "Give them by --proxy-credentials-file, or user:password@ in the proxy's URL.",
    }),
  },
  proxy_auth_refused: {
    isSlow: true,
    explain: ({ by }) => ({
      sentence: `The proxy ${by} does not take the user and password that are given for it.`,
      next: "Correct them before trying again: many wrong ones may lock the account.",
    }),
  },
  proxy_auth_unsupported: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} asks for a kind of login that is not to be had with what is given.`,
      next: "See the detail above; for NTLM alone, a local helper such as px or cntlm stands between.",
    }),
  },
  proxy_auth_withheld: {
    explain: ({ by, proxyFrom = "--pac" }) => ({
      sentence: `The proxy ${by} wants to know who asks, and is not told: ${proxyFrom} names it, a script that was fetched without TLS, so anybody on the path may have named another proxy.`,
      next: "Name the proxy by --proxy, or give the script in --pac by an https:// URL or as a file.",
    }),
  },
  proxy_silent: {
    explain: ({ by, proxyFrom = "--proxy" }) => ({
      sentence: `The proxy ${by} takes the connection and does not answer: it does not reach the server, or is of another kind than its URL says.`,
      next: `Ask its operators whether it resolves and reaches the server's host and port, and works at all; or correct scheme and port in ${proxyFrom}, which names it.`,
    }),
  },
  kdc_silent: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} wants a Kerberos ticket, and none came in time: the KDC, which gives tickets, does not answer this machine.`,
      next: "Check that this machine reaches the KDC (krb5.conf or DNS names it; port 88, UDP and TCP), and that it runs. KRB5_TRACE=/dev/stderr kinit (with a keytab: kinit -k -t FILE), as the agent's user and with its environment, shows whom it asks in vain.",
    }),
  },
  proxy_closed: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} closes the connection instead of answering.`,
      next: "Look at the proxy's log: it may forbid the port, or want a login that it does not ask for.",
    }),
  },
  proxy_forbidden: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} does not let connections to the server through.`,
      next: "Ask its operators to allow CONNECT to the server's host and port.",
    }),
  },
  proxy_unavailable: {
    explain: ({ by }) => ({
      sentence: `The proxy ${by} cannot reach the server, or has no time.`,
      next: "Ask its operators whether it can resolve and reach the server's host and port.",
    }),
  },
  proxy_tls: {
    explain: ({ by }) => ({
      sentence: `TLS with the proxy ${by} itself fails.`,
      next: "See the detail above. Is it an https:// proxy at all? Is it called by a name that is in its certificate? If that comes from a CA of your own, give it as --proxy-ca.",
    }),
  },
  proxy_protocol: {
    explain: ({ by }) => ({
      sentence: `What listens at ${by} is no proxy of the kind that is named.`,
      next: "Correct scheme, host and port of the proxy.",
    }),
  },
  pac: {
    explain: ({ by }) => ({
      sentence: `The script of --pac gives no route: ${by}.`,
      next: "Correct --pac or the script, or name the proxy by --proxy.",
    }),
  },
} as const satisfies Record<string, FaultRow>;
