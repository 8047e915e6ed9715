{{/*
Metadata of the objects of the hook that makes certificates. Argument: (dict "root" $ "weight" number "suffix" text). The
Job has a suffix: its template cannot be changed, so that `kubectl apply` of another one needs another name.
*/}}
{{- define "culvert-server.pkiMetadata" -}}
name: {{ include "culvert-server.fullname" .root }}-pki{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "culvert-server.labels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The Job that makes certificates. */}}
{{- define "culvert-server.pkiSpec" -}}
backoffLimit: 3
ttlSecondsAfterFinished: 600
activeDeadlineSeconds: 300
template:
  metadata:
    labels:
      {{- include "culvert-server.labelsWith" (dict "root" . "component" "pki" "labels" .Values.jobs.podLabels) | nindent 6 }}
    {{- with .Values.jobs.podAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "culvert-server.fullname" . }}-pki
    automountServiceAccountToken: true
    enableServiceLinks: false
    {{- with .Values.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml .Values.podSecurityContext | nindent 6 }}
    containers:
      - name: pki
        image: {{ include "culvert-server.image" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
          - pki
          - kubernetes
          - --namespace
          - {{ .Release.Namespace }}
          - --name
          - {{ include "culvert-server.fullname" . }}
          - --server-names
          - {{ include "culvert-server.callerNames" . | fromYamlArray | join "," | quote }}
          - --agent-names
          - {{ include "culvert-server.agentNames" . | fromYamlArray | join "," | quote }}
          - --days
          - {{ int .Values.tls.generated.days | quote }}
          {{- if include "culvert-server.fleet" . }}
          - --peers
          {{- end }}
        {{- with .Values.jobs.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext:
          {{- toYaml .Values.securityContext | nindent 10 }}
    {{- with .Values.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with omit .Values.affinity "podAntiAffinity" }}{{/* that of the replicas: on as many nodes it would have no place */}}
    affinity:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
{{- end -}}
