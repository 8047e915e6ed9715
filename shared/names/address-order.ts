import { createSocket } from "node:dgram";
import type { LookupAddress } from "node:dns";
import { once } from "node:events";

/** Any port does: nothing is sent. */
const PORT = 53;

/**
 * Of a name with addresses of both families, IPv6 comes first where the kernel has a route and a source address of the
 * same kind, as RFC 6724 and `getaddrinfo` have it.
 */
export async function inOrderOfUse(addresses: readonly LookupAddress[]): Promise<readonly LookupAddress[]> {
  const v4 = addresses.filter(({ family }) => family === 4);
  const v6 = addresses.filter(({ family }) => family === 6);
  const [first] = v6;
  if (v4.length === 0 || first === undefined) return addresses;
  return (await isUsable(first.address)) ? [...v6, ...v4] : [...v4, ...v6];
}

async function isUsable(address: string): Promise<boolean> {
  const socket = createSocket("udp6");
  try {
    socket.connect(PORT, address);
    await once(socket, "connect");
    const source = socket.address().address;
    return isLocal(source) === isLocal(address);
  } catch {
    return false;
  } finally {
    socket.close();
  }
}

/** fc00::/7 and fe80::/10. */
function isLocal(address: string): boolean {
  return /^f[cd]|^fe[89ab]/i.test(address);
}
