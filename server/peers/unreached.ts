import { DialFault } from "../../shared/faults/faults.ts";

/** Why a dial to a peer has failed. What is said of the certificate of an agent's server has other options in it. */
export function whyUnreached(error: Error): string {
  if (!(error instanceof DialFault)) return error.message;
  const { by, validFrom, validTo } = error.facts;
  switch (error.fault) {
    case "server_expired":
      return `its certificate, or its CA's, expired on ${minute(validTo)}: renew its --peer-cert, or compare clocks`;
    case "server_not_yet_valid":
      return `its certificate is not valid before ${minute(validFrom)}: compare clocks, or issue its --peer-cert again`;
    case "wrong_usage":
      return "its certificate is not for servers: issue its --peer-cert again, with serverAuth and clientAuth";
    case "unknown_ca":
    case "intercepted":
      return `its certificate is signed by "${by}", which is not in --peer-ca-cert`;
    default:
      return error.message;
  }
}

function minute(ms = 0): string {
  return `${new Date(ms).toISOString().slice(0, 16)}Z`;
}
