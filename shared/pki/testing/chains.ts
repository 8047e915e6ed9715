import { Authority, type CertificateAndKey } from "../certificates.ts";
import { certificateOf } from "./certificates.ts";

/** A CA file, what the peer shows, and what TLS says of it. */
export interface TrustCase {
  readonly what: string;
  /** The content of the CA file. */
  readonly ca: string;
  /** The peer's certificate, with those in between behind it, for `localhost`. */
  readonly shown: CertificateAndKey;
  readonly isTrusted: boolean;
}

const ENDED = new Date(Date.now() - 60_000);

/**
 * The verdicts of Go, curl and kubectl on CA files and chains: a root, an issuing CA in all its positions, and leaves.
 * Only a certificate that has signed itself is trusted as it is.
 */
export async function trustCases(): Promise<TrustCase[]> {
  const root = await certificateOf({ cn: "root" });
  const otherRoot = await certificateOf({ cn: "other root" });
  const endedRoot = await certificateOf({ cn: "ended root", notAfter: ENDED });
  const upper = await certificateOf({ cn: "upper", by: root });
  const issuing = await certificateOf({ cn: "issuing", by: root });
  const below = await certificateOf({ cn: "below", by: upper });
  const crossed = await certificateOf({ cn: "issuing", by: otherRoot, keyOf: issuing });
  const namesake = await certificateOf({ cn: "issuing", by: root });
  const unsaid = await certificateOf({ cn: "unsaid", isCa: "unsaid", by: root });
  const underEnded = await certificateOf({ cn: "under ended", by: endedRoot });
  const ended = await certificateOf({ cn: "ended", by: root, notAfter: ENDED });
  const leaf = await leafOf(issuing);
  const deep = await leafOf(below);
  const self = await certificateOf({ cn: "localhost", isCa: false });
  const trusted = (what: string, ca: string, shown: CertificateAndKey) => ({ what, ca, shown, isTrusted: true });
  const refused = (what: string, ca: string, shown: CertificateAndKey) => ({ what, ca, shown, isTrusted: false });
  return [
    trusted("the root, and the issuing CA is shown", root.cert, withChain(leaf, issuing)),
    refused("the root, and the issuing CA is not shown", root.cert, leaf),
    trusted("the issuing CA alone", issuing.cert, leaf),
    trusted("the issuing CA alone, which is shown as well", issuing.cert, withChain(leaf, issuing)),
    trusted("the issuing CA alone, and the root is shown as well", issuing.cert, withChain(leaf, issuing, root)),
    trusted("the issuing CA beside its root", root.cert + issuing.cert, leaf),
    trusted("the issuing CA of a root that has ended", underEnded.cert, await leafOf(underEnded)),
    trusted("the same beside its root", endedRoot.cert + underEnded.cert, await leafOf(underEnded)),
    refused("the root that has ended", endedRoot.cert, withChain(await leafOf(underEnded), underEnded)),
    trusted("the lower of two issuing CAs", below.cert, deep),
    trusted("the upper of two issuing CAs", upper.cert, withChain(deep, below)),
    refused("the upper of two issuing CAs, and the lower one is not shown", upper.cert, deep),
    trusted("an issuing CA as its other root has signed it", crossed.cert, withChain(leaf, issuing)),
    trusted("the other root of an issuing CA", otherRoot.cert, withChain(leaf, crossed)),
    refused("an unrelated CA", otherRoot.cert, withChain(leaf, issuing)),
    refused("another issuing CA of the same name", namesake.cert, withChain(leaf, issuing)),
    refused("another issuing CA of the same root", upper.cert, withChain(leaf, issuing)),
    refused("an issuing CA that has ended", ended.cert, await leafOf(ended)),
    refused("an issuing CA that does not say that it is one", unsaid.cert, await leafOf(unsaid)),
    refused("the leaf beside an unrelated CA", leaf.cert + otherRoot.cert, withChain(leaf, issuing)),
    trusted("the leaf beside its CA", leaf.cert + issuing.cert, leaf),
    trusted("a certificate that has signed itself", self.cert, self),
    refused(
      "another certificate that has signed itself",
      self.cert,
      await certificateOf({ cn: "localhost", isCa: false }),
    ),
    refused("no CA", "", withChain(leaf, issuing)),
  ];
}

/** A CA that a root has signed, mostly one which nobody has: TLS needs no more than its own certificate. */
export async function issuingAuthority(cn: string, root?: CertificateAndKey): Promise<Authority> {
  return await Authority.load(await certificateOf({ cn, by: root ?? (await certificateOf({ cn: `root of ${cn}` })) }));
}

async function leafOf(by: CertificateAndKey): Promise<CertificateAndKey> {
  const issuer = await Authority.load(by);
  const notAfter = new Date(Date.now() + 3_600_000);
  return await issuer.issue({ cn: "peer", names: ["localhost"], usage: "both", notAfter });
}

function withChain({ cert, key }: CertificateAndKey, ...between: CertificateAndKey[]): CertificateAndKey {
  return { cert: [cert, ...between.map((each) => each.cert)].join(""), key };
}
