{{/* Metadata of the objects of the hook that makes certificates. Argument: (dict "root" $ "weight" number). */}}
{{- define "culvert-server.pkiMetadata" -}}
name: {{ include "culvert-server.fullname" .root }}-pki
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "culvert-server.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
