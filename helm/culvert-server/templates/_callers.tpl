{{/* What kube-apiserver's own container needs beside the server's: mounts. */}}
{{- define "culvert-server.apiserverMounts" -}}
{{- if include "culvert-server.makesEgress" . }}
- name: culvert-egress
  mountPath: /etc/kubernetes/culvert-egress
  readOnly: true
{{- end }}
{{- with include "culvert-server.socket" . }}
- name: culvert-socket
  mountPath: {{ dir . }}
{{- end }}
{{- if include "culvert-server.mountsClient" . }}
- name: culvert-caller
  mountPath: {{ dir .Values.egress.tls.cert }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* Volumes of kube-apiserver's own container. */}}
{{- define "culvert-server.apiserverVolumes" -}}
{{- if include "culvert-server.makesEgress" . }}
- name: culvert-egress
  configMap:
    name: {{ include "culvert-server.egressName" . }}
{{- end }}
{{- if include "culvert-server.mountsClient" . }}
{{- $tls := include "culvert-server.tls" . | fromYaml }}
- name: culvert-caller
  {{- include "culvert-server.tlsVolume" $tls.client | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Not empty where kube-apiserver needs a certificate, and the chart knows it. */}}
{{- define "culvert-server.clientTls" -}}
{{- $tls := include "culvert-server.tls" . | fromYaml -}}
{{- if and (ne (include "culvert-server.transport" .) "socket") $tls.client.secret -}}true{{- end -}}
{{- end -}}

{{/* Not empty where that certificate is mounted; elsewhere egress.tls names files that the container has already. */}}
{{- define "culvert-server.mountsClient" -}}
{{- $files := .Values.egress.tls -}}
{{- $folder := dir $files.cert -}}
{{- $ours := list (printf "%s/ca.crt" $folder) (printf "%s/tls.crt" $folder) (printf "%s/tls.key" $folder) -}}
{{- if and (include "culvert-server.clientTls" .) (deepEqual $ours (list $files.ca $files.cert $files.key)) -}}true{{- end -}}
{{- end -}}

{{/* Not empty where `helm test` has a pod: with clusters it needs the name of one. */}}
{{- define "culvert-server.tests" -}}
{{- $known := or (not (include "culvert-server.hasClusters" .)) .Values.tests.serverName -}}
{{- if and .Values.tests.enabled (include "culvert-server.clientTls" .) $known -}}true{{- end -}}
{{- end -}}
