{{- define "culvert-agent.folder" -}}/etc/culvert{{- end }}

{{/* "true" where a source of CA certificates names something that the pod mounts or the ConfigMap holds. */}}
{{- define "culvert-agent.hasSource" -}}
{{- if or .pem .existingConfigMap .existingSecret }}true{{ end }}
{{- end }}

{{/*
The options of the agent as a JSON object: those of `options`, and those that other values set. The schema keeps the two
apart. The scripts that generate values.schema.json find the names of the second kind by `set $config`.
*/}}
{{- define "culvert-agent.options" -}}
{{- $folder := include "culvert-agent.folder" . }}
{{- $config := deepCopy .Values.options }}
{{- $_ := set $config "server" .Values.servers }}
{{- if ne .Values.uplinks "all" }}
{{- $_ := set $config "uplinks" .Values.uplinks }}
{{- end }}
{{- $_ := set $config "health-server-port" .Values.ports.health }}
{{- $_ := set $config "admin-server-port" .Values.ports.admin }}
{{- with .Values.cluster }}
{{- $_ := set $config "cluster" . }}
{{- end }}
{{- if eq .Values.auth.method "certificate" }}
{{- $_ := set $config "agent-cert" (printf "%s/certificate/tls.crt" $folder) }}
{{- $_ := set $config "agent-key" (printf "%s/certificate/tls.key" $folder) }}
{{- else }}
{{- $_ := set $config "service-account-token-path" (printf "%s/token/token" $folder) }}
{{- end }}
{{- if include "culvert-agent.hasSource" .Values.serverCA }}
{{- $_ := set $config "ca-cert" (printf "%s/server-ca/ca.crt" $folder) }}
{{- else if and (eq .Values.auth.method "certificate") .Values.auth.certificate.caKey }}
{{- $_ := set $config "ca-cert" (printf "%s/certificate/ca.crt" $folder) }}
{{- end }}
{{- if include "culvert-agent.hasSource" .Values.outerCA }}
{{- $_ := set $config "outer-ca" (printf "%s/outer-ca/ca.crt" $folder) }}
{{- else if .Values.outerCA.system }}
{{- $_ := set $config "outer-ca" "system" }}
{{- end }}
{{- with .Values.proxy.urls }}
{{- $_ := set $config "proxy" . }}
{{- end }}
{{- if .Values.proxy.credentials.existingSecret }}
{{- $_ := set $config "proxy-credentials-file" (printf "%s/proxy-credentials/credentials" $folder) }}
{{- end }}
{{- if include "culvert-agent.hasSource" .Values.proxy.ca }}
{{- $_ := set $config "proxy-ca" (printf "%s/proxy-ca/ca.crt" $folder) }}
{{- end }}
{{- if .Values.proxy.certificate.existingSecret }}
{{- $_ := set $config "proxy-cert" (printf "%s/proxy-certificate/tls.crt" $folder) }}
{{- $_ := set $config "proxy-key" (printf "%s/proxy-certificate/tls.key" $folder) }}
{{- end }}
{{- with .Values.proxy.pac }}
{{- if .url }}
{{- $_ := set $config "pac" .url }}
{{- else if or .script .existingConfigMap }}
{{- $_ := set $config "pac" (printf "%s/pac/proxy.pac" $folder) }}
{{- end }}
{{- end }}
{{- with .Values.targets.allow }}
{{- $_ := set $config "allow-target" . }}
{{- end }}
{{- with .Values.targets.deny }}
{{- $_ := set $config "deny-target" . }}
{{- end }}
{{- if .Values.targets.allowLoopback }}
{{- $_ := set $config "allow-loopback" true }}
{{- end }}
{{- toRawJson $config }}
{{- end }}

{{/* The file of --config. JSON values are YAML, and keep whole numbers whole. */}}
{{- define "culvert-agent.configFile" -}}
{{- range $name, $value := include "culvert-agent.options" . | fromJson }}
{{ $name }}: {{ toRawJson $value }}
{{- end }}
{{- end }}

{{/* What the ConfigMap holds: the options, and what values bring inline. */}}
{{- define "culvert-agent.configData" -}}
culvert.yaml: |
  {{- include "culvert-agent.configFile" . | trim | nindent 2 }}
{{- with .Values.serverCA.pem }}
server-ca.crt: {{ toJson . }}
{{- end }}
{{- with .Values.outerCA.pem }}
outer-ca.crt: {{ toJson . }}
{{- end }}
{{- with .Values.proxy.ca.pem }}
proxy-ca.crt: {{ toJson . }}
{{- end }}
{{- with .Values.proxy.pac.script }}
proxy.pac: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Seconds of .Values.options.drain-timeout, rounded up; 30s is the default of the option. Go reads the duration. */}}
{{- define "culvert-agent.drainSeconds" -}}
{{- $timeout := dig "drain-timeout" "30s" .Values.options | toString }}
{{- $zero := toDate "2006-01-02" "2000-01-01" }}
{{- $end := mustDateModify $timeout $zero }}
{{- ceil (divf ($end.Sub $zero).Milliseconds 1000) | int }}
{{- end }}
