import type { Render } from "../helm.ts";
import {
  type Container,
  chooses,
  type Labels,
  labelSetsOf,
  nameOf,
  type Pod,
  type Selector,
  specOf,
} from "../objects.ts";

type Port = number | string;

/** Each port that a Service, probe, policy or monitor names is a port of the container behind it. */
export function portsExist(render: Render): string[] {
  return [...probePorts(render), ...servicePorts(render), ...monitorPorts(render), ...policyPorts(render)];
}

function probePorts({ pods }: Render): string[] {
  return pods.flatMap(({ owner, spec }) =>
    spec.containers.flatMap((container) => {
      const { livenessProbe, readinessProbe, startupProbe } = container;
      const ports = [livenessProbe, readinessProbe, startupProbe].flatMap((probe) => probe?.httpGet?.port ?? []);
      return ports.filter((port) => !has(container, port)).map((port) => `${nameOf(owner)}: a probe asks port ${port}`);
    }),
  );
}

function servicePorts({ objects, pods }: Render): string[] {
  return objects
    .filter(({ kind }) => kind === "Service")
    .flatMap((service) => {
      const { selector, ports = [] } = specOf<{ selector?: Labels; ports?: ServicePort[] }>(service);
      const behind = containersBehind(pods, selector);
      if (behind.length === 0) return [];
      const targets = ports.map(({ port, targetPort }) => targetPort ?? port);
      return absent(behind, targets).map((port) => `${nameOf(service)} leads to port ${port}, which no container has`);
    });
}

function monitorPorts({ objects, pods }: Render): string[] {
  return objects.flatMap((monitor) => {
    const { selector, endpoints = [], podMetricsEndpoints = [] } = specOf<MonitorSpec>(monitor);
    if (monitor.kind === "PodMonitor") {
      const ports = podMetricsEndpoints.map(({ port }) => port);
      return absent(containersBehind(pods, selector?.matchLabels), ports).map(
        (port) => `${nameOf(monitor)} asks port ${port}, which no container has`,
      );
    }
    if (monitor.kind !== "ServiceMonitor") return [];
    const services = objects.filter(
      ({ kind, metadata }) => kind === "Service" && chooses(selector?.matchLabels, metadata.labels ?? {}),
    );
    const names = services.flatMap((service) => specOf<{ ports?: ServicePort[] }>(service).ports ?? []);
    return endpoints
      .filter(({ port }) => !names.some(({ name }) => name === port))
      .map(({ port }) => `${nameOf(monitor)} asks port ${port}, which no Service has`);
  });
}

function policyPorts({ objects, pods }: Render): string[] {
  return objects
    .filter(({ kind }) => kind === "NetworkPolicy")
    .flatMap((policy) => {
      const { podSelector, ingress = [] } = specOf<PolicySpec>(policy);
      const behind = containersBehind(pods, podSelector?.matchLabels);
      if (behind.length === 0) return [];
      const ports = ingress.flatMap((rule) => rule.ports ?? []).map(({ port }) => port);
      return absent(behind, ports).map((port) => `${nameOf(policy)} lets in port ${port}, which no container has`);
    });
}

interface ServicePort {
  readonly name?: string;
  readonly port: number;
  readonly targetPort?: Port;
}

interface MonitorSpec {
  readonly selector?: Selector;
  readonly endpoints?: readonly { readonly port: string }[];
  readonly podMetricsEndpoints?: readonly { readonly port: string }[];
}

interface PolicySpec {
  readonly podSelector?: Selector;
  readonly ingress?: readonly { readonly ports?: readonly { readonly port: Port }[] }[];
}

function containersBehind(pods: readonly Pod[], selector: Labels | undefined): Container[] {
  return pods
    .filter((pod) => !["Job", "Pod"].includes(pod.owner.kind) && labelSetsOf(pod).some((set) => chooses(selector, set)))
    .flatMap(({ spec }) => spec.containers);
}

function absent(containers: readonly Container[], ports: readonly Port[]): Port[] {
  return ports.filter((port) => !containers.some((container) => has(container, port)));
}

function has({ ports = [] }: Container, wanted: Port): boolean {
  return ports.some(({ name, containerPort }) => wanted === name || wanted === containerPort);
}
