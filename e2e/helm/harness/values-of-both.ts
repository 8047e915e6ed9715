import type { Values } from "./helm.ts";

const LABELS = {
  "app.kubernetes.io/name": "extra",
  "app.kubernetes.io/instance": "{{ .Release.Name }}",
  "helm.sh/chart": "{{ .Chart.Name }}",
};

/** A user's objects beside a chart's: as a map and as text, both with something to fill in. */
const EXTRA_OBJECTS = [extra("as-map"), JSON.stringify(extra("as-text"))];

/** Values of the same names for pods and objects of both charts. */
export const EVERYTHING_OF_BOTH = {
  fullnameOverride: "tunnel",
  commonLabels: { team: "platform" },
  image: { repository: "registry.example.com/culvert", digest: `sha256:${"0".repeat(64)}` },
  imagePullSecrets: [{ name: "registry" }],
  podAnnotations: { note: "one" },
  podLabels: { note: "two" },
  nodeSelector: { "kubernetes.io/os": "linux" },
  tolerations: [{ key: "dedicated", operator: "Exists" }],
  priorityClassName: "system-cluster-critical",
  extraArgs: ["--log-level=debug"],
  extraEnv: [{ name: "NODE_OPTIONS", value: "--no-warnings" }],
  extraVolumes: [{ name: "extra", configMap: { name: "extra" } }],
  extraVolumeMounts: [{ name: "extra", mountPath: "/extra" }],
  extraObjects: EXTRA_OBJECTS,
} satisfies Values;

function extra(name: string) {
  return {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: `{{ .Release.Name }}-${name}`, labels: LABELS },
    data: { release: "{{ .Release.Name }}" },
  };
}
