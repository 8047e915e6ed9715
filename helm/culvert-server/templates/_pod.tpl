{{/*
The server's container: of the chart's own pods, and to paste into a kube-apiserver pod. There the pod's security is not the
chart's, so that the container brings all of it.
*/}}
{{- define "culvert-server.container" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $hypershift := eq .Values.ports.preset "hypershift" -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
- name: {{ ternary .Values.sidecar.containerName "culvert-server" $sidecar }}
  image: {{ include "culvert-server.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - server
    - --config=/etc/culvert/config/culvert.yaml
    {{- range .Values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
  {{- $fleet := include "culvert-server.fleet" . }}
  {{- if or $fleet .Values.extraEnv }}
  env:
    {{- if $fleet }}
    # Where other servers reach this one.
    - name: CULVERT_SERVER_PEER_ADDRESS
      valueFrom:
        fieldRef:
          fieldPath: status.podIP
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    {{- range $name, $number := dict "agents" $ports.agents "agents-clear" $ports.agentsInsecure "callers" $ports.callers
      "health" $ports.health "http" $ports.http "peers" $ports.peers }}
    {{- if int $number }}
    - name: {{ $name }}
      containerPort: {{ $number }}
    {{- end }}
    {{- end }}
  livenessProbe:
    httpGet:
      path: {{ default (ternary "/healthz" "/livez" $hypershift) .Values.probes.livenessPath }}
      port: {{ $ports.health }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  readinessProbe:
    httpGet:
      path: {{ default "/readyz" .Values.probes.readinessPath }}
      port: {{ $ports.health }}
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 2
  startupProbe:
    httpGet:
      path: {{ default (ternary "/healthz" "/livez" $hypershift) .Values.probes.livenessPath }}
      port: {{ $ports.health }}
    periodSeconds: 1
    timeoutSeconds: 3
    failureThreshold: 60
  {{- if int .Values.preStopSeconds }}
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ int .Values.preStopSeconds | quote }}]
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  {{- $security := deepCopy .Values.securityContext }}
  {{- if $sidecar }}
  {{- $security = merge $security (omit .Values.podSecurityContext "fsGroup" "fsGroupChangePolicy" "supplementalGroups"
    "supplementalGroupsPolicy" "sysctls") }}
  {{- end }}
  securityContext:
    {{- toYaml $security | nindent 4 }}
  volumeMounts:
    - name: culvert-config
      mountPath: /etc/culvert/config
      readOnly: true
    {{- if include "culvert-server.agentsTls" . }}
    - name: culvert-agents
      mountPath: /etc/culvert/agents
      readOnly: true
    {{- end }}
    {{- if include "culvert-server.callersTls" . }}
    - name: culvert-callers
      mountPath: /etc/culvert/callers
      readOnly: true
    {{- end }}
    {{- if include "culvert-server.hasClusters" . }}
    - name: culvert-clusters
      mountPath: /etc/culvert/clusters
      readOnly: true
    {{- else if and .Values.agents.token.enabled .Values.agents.token.kubeconfig.secret }}
    - name: culvert-kubeconfig
      mountPath: /etc/culvert/kubeconfig
      readOnly: true
    {{- end }}
    {{- with include "culvert-server.socket" . }}
    - name: culvert-socket
      mountPath: {{ dir . }}
    {{- end }}
    {{- with include "culvert-server.fleetMounts" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The volumes of that container. */}}
{{- define "culvert-server.volumes" -}}
{{- $tls := include "culvert-server.tls" . | fromYaml -}}
{{- $full := include "culvert-server.fullname" . -}}
- name: culvert-config
  configMap:
    name: {{ $full }}-config
{{- if include "culvert-server.agentsTls" . }}
- name: culvert-agents
  {{- include "culvert-server.tlsVolume" $tls.agents | nindent 2 }}
{{- end }}
{{- if include "culvert-server.callersTls" . }}
- name: culvert-callers
  {{- include "culvert-server.tlsVolume" $tls.callers | nindent 2 }}
{{- end }}
{{- if include "culvert-server.hasClusters" . }}
- name: culvert-clusters
  projected:
    sources:
      {{- if .Values.clusters.documents }}
      - configMap:
          name: {{ $full }}-clusters
      {{- end }}
      {{- range .Values.clusters.from }}
      - {{ ternary "configMap" "secret" (hasKey . "configMap") }}:
          name: {{ default .secret .configMap }}
          {{- if .optional }}
          optional: true
          {{- end }}
          {{- if .keys }}
          items:
            {{- $folder := .folder }}
            {{- range .keys }}
            - {key: {{ . | quote }}, path: {{ ternary (printf "%s/%s" $folder .) . (not (empty $folder)) | quote }}}
            {{- end }}
          {{- end }}
      {{- end }}
{{- else if and .Values.agents.token.enabled .Values.agents.token.kubeconfig.secret }}
- name: culvert-kubeconfig
  secret:
    secretName: {{ .Values.agents.token.kubeconfig.secret }}
    items:
      - {key: {{ .Values.agents.token.kubeconfig.key }}, path: kubeconfig}
{{- end }}
{{- if include "culvert-server.socket" . }}
- name: culvert-socket
  emptyDir: {}
{{- end }}
{{- with include "culvert-server.fleetVolumes" . | trim }}
{{ . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* preStop, delay, drain and 10 seconds, or what the values have. */}}
{{- define "culvert-server.gracePeriod" -}}
{{- $delay := include "culvert-server.seconds" (dig "shutdown-delay" "0s" .Values.options) | int -}}
{{- $drain := include "culvert-server.seconds" (dig "drain-timeout" "30s" .Values.options) | int -}}
{{- $least := add (int .Values.preStopSeconds) $delay $drain 10 | int -}}
{{- max $least (int .Values.terminationGracePeriodSeconds) -}}
{{- end -}}

{{/* What the pods of a Deployment and of a StatefulSet have in common: the template. */}}
{{- define "culvert-server.podTemplate" -}}
metadata:
  labels:
    {{- include "culvert-server.podLabels" (dict "root" . "component" "server" "labels" .Values.podLabels) | nindent 4 }}
  annotations:
    checksum/config: {{ include "culvert-server.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "culvert-server.serviceAccountName" . }}
  automountServiceAccountToken: {{ include "culvert-server.asksApi" . | eq "true" }}
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "culvert-server.gracePeriod" . }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
    {{- include "culvert-server.container" . | nindent 4 }}
  volumes:
    {{- include "culvert-server.volumes" . | nindent 4 }}
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
  topologySpreadConstraints:
    {{- include "culvert-server.spread" (dict "root" . "component" "server" "given" .Values.topologySpreadConstraints)
      | trim | nindent 4 }}
{{- end -}}
