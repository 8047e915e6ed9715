{{- define "culvert-agent.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 52 characters leave room for what this chart and Kubernetes append. */}}
{{- define "culvert-agent.fullname" -}}
{{- $name := include "culvert-agent.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "culvert-agent.selectorLabels" -}}
app.kubernetes.io/name: {{ include "culvert-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "culvert-agent.testLabels" -}}
app.kubernetes.io/name: {{ include "culvert-agent.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end }}

{{/* Labels of every object; `component` says what it belongs to. Nobody can override those that selectors use. */}}
{{- define "culvert-agent.labels" -}}
{{- include "culvert-agent.labelsWith" (list . (include "culvert-agent.selectorLabels" .) dict) }}
{{- end }}

{{- define "culvert-agent.labelsOfTest" -}}
{{- include "culvert-agent.labelsWith" (list . (include "culvert-agent.testLabels" .) dict) }}
{{- end }}

{{/* (list CONTEXT SELECTOR-LABELS MORE-LABELS) */}}
{{- define "culvert-agent.labelsWith" -}}
{{- $context := index . 0 }}
{{- with $context }}
{{- $own := dict "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/part-of" "culvert" }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63) }}
{{- toYaml (mergeOverwrite $own .Values.commonLabels (index $ 2) (index $ 1 | fromYaml)) }}
{{- end }}
{{- end }}

{{/* Without the chart's version: a new one alone replaces no pod. */}}
{{- define "culvert-agent.podLabels" -}}
{{- $selector := include "culvert-agent.selectorLabels" . | fromYaml }}
{{- toYaml (mergeOverwrite dict .Values.commonLabels .Values.podLabels $selector) }}
{{- end }}

{{- define "culvert-agent.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "culvert-agent.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "culvert-agent.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}
