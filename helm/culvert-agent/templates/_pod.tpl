{{/* The pod template of Deployment and DaemonSet. */}}
{{- define "culvert-agent.podTemplate" -}}
metadata:
  labels:
    {{- include "culvert-agent.podLabels" . | nindent 4 }}
  annotations:
    # Options are read at the start, so other ones need new pods. Secrets and other ConfigMaps are read again.
    checksum/config: {{ include "culvert-agent.configData" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "culvert-agent.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # The agent takes drain-timeout at most to finish its connections after SIGTERM.
  terminationGracePeriodSeconds: {{ add (include "culvert-agent.drainSeconds" .) 10 }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  dnsPolicy: {{ default (ternary "ClusterFirstWithHostNet" "ClusterFirst" .Values.hostNetwork) .Values.dnsPolicy }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    - name: agent
      image: {{ include "culvert-agent.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - agent
        - --config={{ include "culvert-agent.folder" . }}/config/culvert.yaml
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or .Values.extraEnv (ne .Values.agentIdFrom "random") }}
      env:
        {{- if ne .Values.agentIdFrom "random" }}
        - name: CULVERT_AGENT_AGENT_ID
          valueFrom:
            fieldRef:
              fieldPath: {{ ternary "spec.nodeName" "metadata.name" (eq .Values.agentIdFrom "node") }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      ports:
        - name: health
          containerPort: {{ int .Values.ports.health }}
      livenessProbe:
        {{- include "culvert-agent.probe" (list "/livez" .Values.livenessProbe) | nindent 8 }}
      readinessProbe:
        {{- include "culvert-agent.probe" (list "/readyz" .Values.readinessProbe) | nindent 8 }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "culvert-agent.volumeMounts" . | trim | nindent 8 }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "culvert-agent.volumes" . | trim | nindent 4 }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "culvert-agent.spread" . }}
  topologySpreadConstraints:
    {{- trim . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* (list PATH VALUES): the values win, also over the path. */}}
{{- define "culvert-agent.probe" -}}
{{- toYaml (mergeOverwrite (dict "httpGet" (dict "path" (index . 0) "port" "health")) (index . 1)) }}
{{- end }}

{{/* Zones are never required: many clusters have one. matchLabelKeys compares the pods of one revision only. */}}
{{- define "culvert-agent.spread" -}}
{{- if .Values.topologySpreadConstraints }}
{{- toYaml .Values.topologySpreadConstraints }}
{{- else if and (eq .Values.kind "Deployment") (ne .Values.spread "off") }}
{{- $onNodes := ternary "DoNotSchedule" "ScheduleAnyway" (eq .Values.spread "required") }}
{{- range $key, $when := dict "kubernetes.io/hostname" $onNodes "topology.kubernetes.io/zone" "ScheduleAnyway" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: {{ $when }}
  labelSelector:
    matchLabels:
      {{- include "culvert-agent.selectorLabels" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end }}
