import { type CaRelation, type FaultRow, type FaultText, minuteOf } from "./fault-row.ts";

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

/** Faults of the certificate that was shown in TLS; `opened`: it is the certificate of a middlebox. */
export const CERTIFICATE_FAULTS = {
  unknown_ca: {
    retry: "soon",
    explain: ({ by, relation = "another" }) => UNKNOWN_CA_TEXTS[relation](by),
  },
  intercepted: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}": the certificate that comes is not signed by the server's CA.`,
      next: `Ask the network team to exempt the server from TLS inspection, or go through it: --outer-ca here with the CA certificate of "${by}", --inner-tls=auto at the server. If "${by}" is the server's own CA, give it as --ca-cert, and check that the port in --server is the one for agents.`,
    }),
  },
  outer_ca: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}", whom neither --ca-cert nor --outer-ca knows.`,
      next: `Ask the network team for the CA certificate of "${by}", and give it as --outer-ca, beside what is there; or to exempt the server from TLS inspection. If "${by}" is the server's own CA, give it as --ca-cert.`,
    }),
  },
  inner_tls_never: {
    retry: "soon",
    explain: ({ by }) => ({
      sentence: `TLS is intercepted by "${by}", and this agent may not go through that: --inner-tls=never is set here.`,
      next: `Set --inner-tls=auto here, with the CA certificate of "${by}" as --outer-ca; the server needs --inner-tls=auto, too. Or ask the network team to exempt the server from TLS inspection.`,
    }),
  },
  inner_untrusted: {
    retry: "soon",
    label: "failed",
    explain: ({ by, openedBy, relation = "another" }) => ({
      sentence: `The certificate shown inside inner TLS is ${INNER_WORDS[relation](by)}${openedBy === undefined ? "" : `, while "${openedBy}" opens TLS on the way`}.`,
      next: `If "${by}" is the server's CA for agents, give its present certificate as --ca-cert. If it is not, somebody in between plays the server: tell the network team.`,
    }),
  },
  server_expired: {
    retry: "soon",
    label: "failed",
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
    retry: "soon",
    label: "failed",
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
    retry: "soon",
    label: "failed",
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
    retry: "soon",
    label: "failed",
    explain: ({ by, isClients }) => ({
      sentence: `The certificate of ${by} ${isClients ? "is a client's: its extended key usage has no serverAuth" : "may not be used by a server: its usage does not allow it"}.`,
      next: "Issue the server's --cluster-cert again, with serverAuth in its extended key usage and digitalSignature in its key usage.",
    }),
    opened: ({ by, openedBy }) => ({
      sentence: `TLS is opened on the way by "${openedBy}", and the certificate that it shows in place of ${by} is not a server's.`,
      next: ASK_FOR_A_CERTIFICATE,
    }),
  },
} as const satisfies Record<string, FaultRow>;
