{{/*
Volumes of the agent. A file has the same name whatever its key in the ConfigMap or Secret is called, so that the options
always name the same paths. Folders are mounted, no single files: Kubernetes updates only those.
*/}}
{{- define "culvert-agent.volumes" -}}
{{- $fullname := include "culvert-agent.fullname" . }}
- name: config
  configMap:
    name: {{ $fullname }}
    items: [{key: culvert.yaml, path: culvert.yaml}]
{{- if eq .Values.auth.method "certificate" }}
{{- with .Values.auth.certificate }}
- name: certificate
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: {{ include "culvert-agent.secretMode" $ }}
    items:
      - {key: {{ .certKey | quote }}, path: tls.crt}
      - {key: {{ .keyKey | quote }}, path: tls.key}
      {{- if and .caKey (not (include "culvert-agent.hasSource" $.Values.serverCA)) }}
      - {key: {{ .caKey | quote }}, path: ca.crt}
      {{- end }}
{{- end }}
{{- else }}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          path: token
          audience: {{ .Values.auth.token.audience | quote }}
          expirationSeconds: {{ int .Values.auth.token.expirationSeconds }}
{{- end }}
{{- include "culvert-agent.caVolume" (dict "context" . "name" "server-ca" "source" .Values.serverCA) }}
{{- include "culvert-agent.caVolume" (dict "context" . "name" "outer-ca" "source" .Values.outerCA) }}
{{- include "culvert-agent.caVolume" (dict "context" . "name" "proxy-ca" "source" .Values.proxy.ca) }}
{{- with .Values.proxy.credentials }}
{{- if .existingSecret }}
- name: proxy-credentials
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: {{ include "culvert-agent.secretMode" $ }}
    items: [{key: {{ .key | quote }}, path: credentials}]
{{- end }}
{{- end }}
{{- with .Values.proxy.certificate }}
{{- if .existingSecret }}
- name: proxy-certificate
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: {{ include "culvert-agent.secretMode" $ }}
    items:
      - {key: {{ .certKey | quote }}, path: tls.crt}
      - {key: {{ .keyKey | quote }}, path: tls.key}
{{- end }}
{{- end }}
{{- with .Values.proxy.pac }}
{{- if .script }}
- name: pac
  configMap:
    name: {{ $fullname }}
    items: [{key: proxy.pac, path: proxy.pac}]
{{- else if .existingConfigMap }}
- name: pac
  configMap:
    name: {{ .existingConfigMap }}
    items: [{key: {{ .key | quote }}, path: proxy.pac}]
{{- end }}
{{- end }}
{{- end }}

{{/* 0440: the group, which is fsGroup, reads the files. YAML parsers do not agree on octal numbers. */}}
{{- define "culvert-agent.secretMode" -}}288{{- end }}

{{/* A volume with ca.crt: inline from the chart's ConfigMap, or a key of an existing ConfigMap or Secret. */}}
{{- define "culvert-agent.caVolume" -}}
{{- with .source }}
{{- if .pem }}
- name: {{ $.name }}
  configMap:
    name: {{ include "culvert-agent.fullname" $.context }}
    items: [{key: {{ $.name }}.crt, path: ca.crt}]
{{- else if .existingConfigMap }}
- name: {{ $.name }}
  configMap:
    name: {{ .existingConfigMap }}
    items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- else if .existingSecret }}
- name: {{ $.name }}
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end }}

{{/* Every volume of "culvert-agent.volumes" is mounted under its own name. */}}
{{- define "culvert-agent.volumeMounts" -}}
{{- range include "culvert-agent.volumes" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: {{ include "culvert-agent.folder" $ }}/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}
