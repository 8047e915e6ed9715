const LABELS = {
  "app.kubernetes.io/name": "extra",
  "app.kubernetes.io/instance": "{{ .Release.Name }}",
  "helm.sh/chart": "{{ .Chart.Name }}",
};

/** A user's objects beside a chart's: as a map and as text, both with something to fill in. */
export const EXTRA_OBJECTS = [extra("as-map"), JSON.stringify(extra("as-text"))];

function extra(name: string) {
  return {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: `{{ .Release.Name }}-${name}`, labels: LABELS },
    data: { release: "{{ .Release.Name }}" },
  };
}
