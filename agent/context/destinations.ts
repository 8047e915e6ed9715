import { formatTarget, parseTarget, type Target } from "../../shared/address/target.ts";

/** A port of this node, and the destination of its connections. */
export interface DestinationPort {
  readonly port: number;
  readonly target: Target;
}

/** Parses `PORT:HOST:PORT`, such as `443:kube-apiserver:6443` or `443:[fd00::1]:6443`. Throws a sentence. */
export function parseDestinationPort(text: string): DestinationPort {
  const [, port, target] = /^(\d{1,5}):(.+)$/.exec(text) ?? [];
  if (port === undefined || target === undefined || Number(port) < 1 || Number(port) > 65_535) {
    throw new Error(`"${text}" is no PORT:HOST:PORT, for example 6443:kube-apiserver:6443`);
  }
  return { port: Number(port), target: parseTarget(target) };
}

export function formatDestinationPort({ port, target }: DestinationPort): string {
  return `${port}:${formatTarget(target)}`;
}
