{{/* URL of the server for kube-apiserver, over TCP. */}}
{{- define "culvert-server.callersUrl" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- if .Values.egress.url -}}
{{- .Values.egress.url -}}
{{- else if eq .Values.mode "sidecar" -}}
https://localhost:{{ $ports.callers }}
{{- else -}}
https://{{ include "culvert-server.callersServiceName" . }}.{{ .Release.Namespace }}.svc:{{ include "culvert-server.callersServicePort" . }}
{{- end -}}
{{- end -}}

{{/* The file of kube-apiserver's --egress-selector-config-file. */}}
{{- define "culvert-server.egress" -}}
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
{{- range .Values.egress.selections }}
  - name: {{ . }}
    connection:
      proxyProtocol: HTTPConnect
      transport:
        {{- if eq (include "culvert-server.transport" $) "tcp" }}
        tcp:
          url: {{ include "culvert-server.callersUrl" $ }}
          tlsConfig:
            caBundle: {{ $.Values.egress.tls.ca }}
            clientCert: {{ $.Values.egress.tls.cert }}
            clientKey: {{ $.Values.egress.tls.key }}
        {{- else }}
        uds:
          udsName: {{ include "culvert-server.socket" $ }}
        {{- end }}
{{- end }}
{{- end -}}

{{/*
Whether the chart makes that file. Callers of several clusters name theirs by the server's name (SNI), or by a socket of
its own: the URL of the Service would fit none of them.
*/}}
{{- define "culvert-server.makesEgress" -}}
{{- $fits := or .Values.egress.url (ne .Values.mode "standalone") (not (include "culvert-server.hasClusters" .)) -}}
{{- if and .Values.egress.create $fits }}true{{ end -}}
{{- end -}}

{{- define "culvert-server.egressName" -}}
{{- default (printf "%s-egress" (include "culvert-server.fullname" .)) .Values.egress.name -}}
{{- end -}}
