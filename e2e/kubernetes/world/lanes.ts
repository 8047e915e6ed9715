/** Whose agent it is: ours, or the one of Konnectivity. */
export type AgentKind = "culvert" | "konnectivity";

/** A way from the control plane to the node: what kube-apiserver speaks, over which listener, and the node's agents. */
interface TunnelLane {
  readonly title: string;
  readonly protocol: "HTTPConnect" | "GRPC";
  readonly transport: "unix socket" | "TCP";
  readonly agents: readonly AgentKind[];
}

const CONNECT_ON_SOCKET = { protocol: "HTTPConnect", transport: "unix socket" } as const;
const GRPC_ON_SOCKET = { protocol: "GRPC", transport: "unix socket" } as const;

/** By lane. For GRPC, kube-apiserver takes a unix socket alone. */
export const TUNNELS = {
  uds: { title: "unix socket", ...CONNECT_ON_SOCKET, agents: ["culvert"] },
  tcp: { title: "TCP + mTLS", protocol: "HTTPConnect", transport: "TCP", agents: ["culvert"] },
  grpc: { title: "gRPC", ...GRPC_ON_SOCKET, agents: ["culvert"] },
  "grpc-stock": { title: "gRPC, stock agent", ...GRPC_ON_SOCKET, agents: ["konnectivity"] },
  "connect-stock": { title: "CONNECT, stock agent", ...CONNECT_ON_SOCKET, agents: ["konnectivity"] },
  mixed: { title: "gRPC, both agents", ...GRPC_ON_SOCKET, agents: ["culvert", "konnectivity"] },
} as const satisfies Record<string, TunnelLane>;

export type CulvertLane = keyof typeof TUNNELS;

/** For comparison, `direct` has no culvert at all. */
export type Lane = CulvertLane | "direct";

export const CULVERT_LANES = Object.keys(TUNNELS) as CulvertLane[];

/** Lanes whose agents are all of this kind. */
export function lanesWith(kind: AgentKind): CulvertLane[] {
  return CULVERT_LANES.filter((lane) => TUNNELS[lane].agents.every((each) => each === kind));
}

/** For checks that never run directly. */
export function tunnelOf(lane: Lane): TunnelLane {
  if (lane === "direct") throw new Error("there is no culvert on this lane");
  return TUNNELS[lane];
}

export function titleOf(lane: Lane): string {
  return lane === "direct" ? "directly" : TUNNELS[lane].title;
}
