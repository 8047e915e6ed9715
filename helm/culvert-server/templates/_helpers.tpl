{{- define "culvert-server.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 46 characters, so that the longest suffix (-router, -agents-99, -selfsigned) stays within 63. */}}
{{- define "culvert-server.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- end -}}
{{- $full | trunc 46 | trimSuffix "-" -}}
{{- end -}}

{{- define "culvert-server.selectorLabels" -}}
app.kubernetes.io/name: {{ include "culvert-server.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "culvert-server.labels" -}}
{{- $own := include "culvert-server.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/version" (default .Chart.AppVersion .Values.image.tag | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "culvert" -}}
{{- toYaml (merge $own .Values.commonLabels) -}}
{{- end -}}

{{/*
Labels of an object that has some of its own. Argument: (dict "root" $ "labels" map "component" name), both may be left out.
*/}}
{{- define "culvert-server.labelsWith" -}}
{{- $own := include "culvert-server.labels" .root | fromYaml -}}
{{- with .component -}}{{- $_ := set $own "app.kubernetes.io/component" . -}}{{- end -}}
{{- toYaml (merge $own (default dict .labels)) -}}
{{- end -}}

{{/*
Labels of pods, without the chart's version: a new one alone replaces no pod. Argument: (dict "root" $ "labels" map
"component" name).
*/}}
{{- define "culvert-server.podLabels" -}}
{{- $own := include "culvert-server.selectorLabels" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
{{- toYaml (merge $own .labels .root.Values.commonLabels) -}}
{{- end -}}

{{/* Annotation of what a kube-apiserver's pod mounts: without it, that pod could not start again after `helm uninstall`. */}}
{{- define "culvert-server.keep" -}}
helm.sh/resource-policy: keep
{{- end -}}

{{/* What stays when the release is removed, as a YAML map from kind to names. */}}
{{- define "culvert-server.leftovers" -}}
{{- $full := include "culvert-server.fullname" . -}}
{{- $left := dict -}}
{{- $maps := list -}}
{{- if include "culvert-server.makesEgress" . -}}{{- $maps = append $maps (include "culvert-server.egressName" .) -}}{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $maps = append $maps (printf "%s-config" $full) -}}
{{- if .Values.clusters.documents -}}{{- $maps = append $maps (printf "%s-clusters" $full) -}}{{- end -}}
{{- if and .Values.serviceAccount.create (or .Values.router.enabled (include "culvert-server.asksApi" .)) -}}
{{- $_ := set $left "serviceaccount" (list (include "culvert-server.serviceAccountName" .)) -}}
{{- end -}}
{{- end -}}
{{- with $maps -}}{{- $_ := set $left "configmap" . -}}{{- end -}}
{{- if ne .Values.tls.source "existing" -}}
{{- $secrets := list -}}
{{- range list "ca" "server" "caller" "agent" -}}{{- $secrets = append $secrets (printf "%s-%s" $full .) -}}{{- end -}}
{{- if include "culvert-server.fleet" . -}}{{- $secrets = append $secrets (printf "%s-peer" $full) -}}{{- end -}}
{{- $_ := set $left "secret" $secrets -}}
{{- end -}}
{{- toYaml $left -}}
{{- end -}}

{{/* Labels by which Services, budgets and policies find the server's pods. */}}
{{- define "culvert-server.podSelector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- toYaml .Values.sidecar.podSelector -}}
{{- else -}}
{{- include "culvert-server.selectorLabels" . }}
app.kubernetes.io/component: server
{{- end -}}
{{- end -}}

{{- define "culvert-server.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "culvert-server.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "culvert-server.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How pods are spread where the values say nothing. Argument: (dict "root" $ "component" name "given" list). */}}
{{- define "culvert-server.spread" -}}
{{- if .given -}}
{{- toYaml .given -}}
{{- else -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "culvert-server.selectorLabels" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Seconds of a duration as options have it (1h30m, 500ms), rounded up. Argument: the text, which Go reads. */}}
{{- define "culvert-server.seconds" -}}
{{- $zero := toDate "2006-01-02" "2000-01-01" -}}
{{- $end := mustDateModify (toString .) $zero -}}
{{- divf ($end.Sub $zero).Milliseconds 1000 | ceil | int -}}
{{- end -}}
