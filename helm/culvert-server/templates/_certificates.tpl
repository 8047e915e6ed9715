{{/*
A Certificate of cert-manager. Argument: (dict "root" $ "suffix" name "commonName" name "usage" usages "dnsNames" list
"ipAddresses" list "organization" name).
*/}}
{{- define "culvert-server.certificate" -}}
{{- $full := include "culvert-server.fullname" .root -}}
{{- $manager := .root.Values.tls.certManager -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $full }}-{{ .suffix }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "culvert-server.labels" .root | nindent 4 }}
spec:
  secretName: {{ $full }}-{{ .suffix }}
  commonName: {{ .commonName }}
  {{- with .organization }}
  subject:
    organizations: [{{ . }}]
  {{- end }}
  duration: {{ $manager.duration }}
  renewBefore: {{ $manager.renewBefore }}
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  usages: [digital signature, {{ .usage }}]
  {{- with .dnsNames }}
  dnsNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .ipAddresses }}
  ipAddresses:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  issuerRef:
    name: {{ default (printf "%s-ca" $full) $manager.issuerRef.name }}
    kind: {{ $manager.issuerRef.kind }}
    group: {{ $manager.issuerRef.group }}
{{- end -}}
