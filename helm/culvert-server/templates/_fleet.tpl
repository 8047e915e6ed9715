{{/* Not empty where there is a directory of servers, so that they pass CONNECTs on to each other. */}}
{{- define "culvert-server.fleet" -}}
{{- if .Values.directory.urls -}}true{{- end -}}
{{- end -}}

{{/* Options of a fleet, as a YAML map. The address of the pod is in its environment. */}}
{{- define "culvert-server.fleetConfig" -}}
{{- $directory := .Values.directory -}}
directory:
  {{- toYaml $directory.urls | nindent 2 }}
{{- if $directory.credentials.secret }}
directory-credentials: /etc/culvert/directory/credentials
{{- end }}
{{- if or $directory.ca.secret $directory.ca.configMap }}
directory-ca-cert: /etc/culvert/directory/ca.crt
{{- end }}
{{- if $directory.client.secret }}
directory-cert: /etc/culvert/directory/tls.crt
directory-key: /etc/culvert/directory/tls.key
{{- end }}
peer-port: {{ int .Values.ports.peers }}
peer-cert: /etc/culvert/peers/tls.crt
peer-key: /etc/culvert/peers/tls.key
peer-ca-cert: /etc/culvert/peers/ca.crt
peer-identities:
  {{- toYaml .Values.peers.identities | nindent 2 }}
{{- end -}}

{{/* Not empty where NATS needs files. */}}
{{- define "culvert-server.directoryFiles" -}}
{{- $directory := .Values.directory -}}
{{- if and (include "culvert-server.fleet" .) (or $directory.credentials.secret $directory.client.secret $directory.ca.secret
  $directory.ca.configMap) -}}true{{- end -}}
{{- end -}}

{{- define "culvert-server.fleetMounts" -}}
{{- if include "culvert-server.fleet" . }}
- name: culvert-peers
  mountPath: /etc/culvert/peers
  readOnly: true
{{- end }}
{{- if include "culvert-server.directoryFiles" . }}
- name: culvert-directory
  mountPath: /etc/culvert/directory
  readOnly: true
{{- end }}
{{- end -}}

{{- define "culvert-server.fleetVolumes" -}}
{{- $directory := .Values.directory -}}
{{- if include "culvert-server.fleet" . }}
- name: culvert-peers
  {{- include "culvert-server.tlsVolume" (include "culvert-server.tls" . | fromYaml).peers | nindent 2 }}
{{- end }}
{{- if include "culvert-server.directoryFiles" . }}
- name: culvert-directory
  projected:
    sources:
      {{- with $directory.credentials }}
      {{- if .secret }}
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .key | quote }}, path: credentials}
      {{- end }}
      {{- end }}
      {{- with $directory.client }}
      {{- if .secret }}
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .certKey | quote }}, path: tls.crt}
            - {key: {{ .keyKey | quote }}, path: tls.key}
      {{- end }}
      {{- end }}
      {{- with $directory.ca }}
      {{- if or .secret .configMap }}
      - {{ ternary "configMap" "secret" (not (empty .configMap)) }}:
          name: {{ default .secret .configMap }}
          items:
            - {key: {{ .key | quote }}, path: ca.crt}
      {{- end }}
      {{- end }}
{{- end }}
{{- end -}}

{{/* Part of culvert-server.validate. */}}
{{- define "culvert-server.checkFleet" -}}
{{- if include "culvert-server.fleet" . -}}
{{- if not .Values.peers.identities -}}
{{- fail "peers.identities: name the role in the certificates of servers, such as [O=culvert-servers]." -}}
{{- end -}}
{{- $peers := .Values.tls.existing.peers -}}
{{- if eq .Values.tls.source "existing" -}}
{{- if not $peers.secret -}}
{{- fail "tls.existing.peers.secret: directory.urls needs the Secret with the certificate that servers show each other." -}}
{{- end -}}
{{- if not (or $peers.ca.secret $peers.ca.configMap) -}}
{{- fail "tls.existing.peers.ca: directory.urls needs the Secret or ConfigMap with the CA of servers' certificates." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.directory.ca.secret .Values.directory.ca.configMap -}}
{{- fail "directory.ca: it is one Secret or one ConfigMap: leave one of both empty." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of the fleet in samples: its directory, which all its releases have. */}}
{{- define "culvert-server.fleetName" -}}
{{- .Values.directory.urls | sortAlpha | join "," -}}
{{- end -}}
