{{/*
Where the certificates are, as a YAML map: agents (shown to agents), callers (shown to callers), client (of kube-apiserver), peers (other servers), each
{secret, certKey, keyKey, ca: {secret, configMap, key}}. Sources that the chart fills write the same Secrets.
*/}}
{{- define "culvert-server.tls" -}}
{{- if eq .Values.tls.source "existing" -}}
{{- toYaml .Values.tls.existing -}}
{{- else -}}
{{- $full := include "culvert-server.fullname" . -}}
{{- range $side, $suffix := dict "agents" "server" "callers" "server" "client" "caller" "peers" "peer" }}
{{ $side }}:
  secret: {{ $full }}-{{ $suffix }}
  certKey: tls.crt
  keyKey: tls.key
  ca: {secret: {{ $full }}-{{ $suffix }}, configMap: "", key: ca.crt}
{{- end }}
{{- end -}}
{{- end -}}

{{/* A projected volume with tls.crt, tls.key and ca.crt. Argument: a side of culvert-server.tls. */}}
{{- define "culvert-server.tlsVolume" -}}
projected:
  sources:
    - secret:
        name: {{ .secret }}
        items:
          - {key: {{ .certKey | quote }}, path: tls.crt}
          - {key: {{ .keyKey | quote }}, path: tls.key}
          {{- if eq .ca.secret .secret }}
          - {key: {{ .ca.key | quote }}, path: ca.crt}
          {{- end }}
    {{- if .ca.configMap }}
    - configMap:
        name: {{ .ca.configMap }}
        items:
          - {key: {{ .ca.key | quote }}, path: ca.crt}
    {{- else if and .ca.secret (ne .ca.secret .secret) }}
    - secret:
        name: {{ .ca.secret }}
        items:
          - {key: {{ .ca.key | quote }}, path: ca.crt}
    {{- end }}
{{- end -}}

{{/* Not empty where the server shows a certificate of its own to agents. */}}
{{- define "culvert-server.agentsTls" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $tls := include "culvert-server.tls" . | fromYaml -}}
{{- if and (or (int $ports.agents) (int $ports.agentsInsecure)) $tls.agents.secret -}}true{{- end -}}
{{- end -}}

{{/* Not empty where the server shows a certificate of its own to callers. */}}
{{- define "culvert-server.callersTls" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $tls := include "culvert-server.tls" . | fromYaml -}}
{{- if and (int $ports.callers) $tls.callers.secret -}}true{{- end -}}
{{- end -}}

{{/* Not empty where documents describe the clusters. */}}
{{- define "culvert-server.hasClusters" -}}
{{- if or .Values.clusters.documents .Values.clusters.from -}}true{{- end -}}
{{- end -}}

{{/* Not empty where the service account asks this cluster's API about tokens. */}}
{{- define "culvert-server.tokenReview" -}}
{{- $needed := or .Values.rbac.tokenReview (and .Values.agents.token.enabled (not .Values.agents.token.kubeconfig.secret)) -}}
{{- range .Values.clusters.documents -}}
{{- range $side := list .agents .callers -}}
{{- $review := dig "token" "tokenReview" dict (default dict $side) -}}
{{- if and $review (not (get $review "kubeconfig")) -}}{{- $needed = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $needed -}}true{{- end -}}
{{- end -}}
