import * as z from "zod";

export const ENDPOINT_SLICES = { group: "discovery.k8s.io", plural: "endpointslices", singular: "EndpointSlice" };

/** The label by which EndpointSlices belong to a Service. */
export const SERVICE_LABEL = "kubernetes.io/service-name";

/** The fields of an EndpointSlice (discovery.k8s.io/v1) that are read. */
export const EndpointSlice = z.object({
  metadata: z.object({ name: z.string() }),
  endpoints: z
    .array(
      z.object({
        addresses: z.array(z.string()).default([]),
        conditions: z.object({ ready: z.boolean().nullish(), terminating: z.boolean().nullish() }).nullish(),
        targetRef: z.object({ uid: z.string().optional() }).nullish(),
      }),
    )
    .nullish(),
});
export type EndpointSlice = z.infer<typeof EndpointSlice>;

/**
 * The number of servers behind a Service: its endpoints that are ready and do not end. A pod with IPv4 and IPv6 is in
 * two slices and counts once. With `publishNotReadyAddresses` every pod is ready here.
 */
export function serversIn(slices: readonly EndpointSlice[]): number {
  const servers = new Set<string>();
  for (const { endpoints } of slices) {
    for (const { addresses, conditions, targetRef } of endpoints ?? []) {
      const id = targetRef?.uid ?? addresses[0];
      // Kubernetes: no condition "ready" is to be read as ready.
      if (id !== undefined && conditions?.ready !== false && conditions?.terminating !== true) servers.add(id);
    }
  }
  return servers.size;
}
