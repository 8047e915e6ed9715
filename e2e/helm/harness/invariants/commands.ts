import { mapConcurrently } from "../../../harness/concurrently.ts";
import { isService, type Printed, printedConfig } from "../command-line.ts";
import type { Render } from "../helm.ts";
import { type Container, nameOf, type Pod } from "../objects.ts";

/** A container of a rendered pod that runs a service of ours, and what `--print-config` says to its command line. */
export interface Service {
  readonly render: Render;
  readonly pod: Pod;
  readonly container: Container;
  readonly printed: Printed;
}

/** Starts each of them once. */
export async function servicesOf(renders: readonly Render[]): Promise<Service[]> {
  const found = renders.flatMap((render) =>
    render.pods.flatMap((pod) =>
      pod.spec.containers.filter(isService).map((container) => ({ render, pod, container })),
    ),
  );
  return await mapConcurrently(found, async (service) => ({
    ...service,
    printed: await printedConfig(service.render, service.pod, service.container),
  }));
}

/** The command takes its options, and has nothing to say about them. */
export function optionsAreKnown({ pod, container, printed }: Service): string[] {
  if (printed.code === 0 && printed.stderr === "") return [];
  return [`${nameOf(pod.owner)}, ${container.name}: exit code ${printed.code}: ${printed.stderr}`];
}

/** Each port on which the process listens is a port of the container; those of loopback are nobody's. */
export function portsAreListenedOn({ pod, container, printed }: Service): string[] {
  const { values } = printed;
  const listened = [...values]
    .filter(([name, port]) => /(^|-)port$/.test(name) && port !== "0")
    .map(([, port]) => Number(port));
  return (container.ports ?? [])
    .filter(({ containerPort }) => !listened.includes(containerPort))
    .map(({ containerPort }) => `${nameOf(pod.owner)}: nobody listens on port ${containerPort} of ${container.name}`);
}
