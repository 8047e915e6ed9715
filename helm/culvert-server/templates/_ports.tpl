{{/* What a preset stands for. */}}
{{- define "culvert-server.presets" -}}
culvert: {callers: 8090, agents: 8091, health: 8092, admin: 8095}
anp: {callers: 8090, agents: 8091, health: 8092, admin: 8095}
konnectivity: {callers: 8090, agents: 8132, health: 8134, admin: 8133}
hypershift: {callers: 8090, agents: 8091, health: 2041, admin: 8093}
{{- end -}}

{{/* tcp, socket or both: how callers come. */}}
{{- define "culvert-server.transport" -}}
{{- if ne .Values.callers.transport "auto" -}}
{{- .Values.callers.transport -}}
{{- else if and (eq .Values.mode "sidecar") (has .Values.ports.preset (list "culvert" "konnectivity")) -}}
socket
{{- else -}}
tcp
{{- end -}}
{{- end -}}

{{/* Path of the callers' socket; empty where there is none. */}}
{{- define "culvert-server.socket" -}}
{{- if ne (include "culvert-server.transport" .) "tcp" -}}
{{- if .Values.callers.socket.path -}}
{{- .Values.callers.socket.path -}}
{{- else if eq .Values.ports.preset "konnectivity" -}}
/etc/kubernetes/konnectivity-server/konnectivity-server.socket
{{- else -}}
/run/culvert/culvert.sock
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The ports in use, as a YAML map: callers, agents, health, admin, http, agentsInsecure, peers. 0: off. */}}
{{- define "culvert-server.ports" -}}
{{- $presets := include "culvert-server.presets" . | fromYaml -}}
{{- $preset := index $presets .Values.ports.preset -}}
{{- range $name := list "callers" "agents" "health" "admin" }}
{{- $given := index $.Values.ports $name | int }}
{{- $number := ternary (index $preset $name | int) $given (lt $given 0) }}
{{- if and (eq $name "callers") (eq (include "culvert-server.transport" $) "socket") }}
{{- $number = 0 }}
{{- end }}
{{ $name }}: {{ $number }}
{{- end }}
http: {{ ternary 0 (int .Values.ports.http) (eq (include "culvert-server.transport" .) "socket") }}
agentsInsecure: {{ ternary (int .Values.ports.agentsInsecure) 0 (include "culvert-server.terminates" . | eq "true") }}
peers: {{ ternary (int .Values.ports.peers) 0 (include "culvert-server.fleet" . | eq "true") }}
{{- end -}}

{{/* true where an ingress ends the agents' TLS. */}}
{{- define "culvert-server.terminates" -}}
{{- and .Values.ingress.enabled (eq .Values.ingress.termination "terminate") -}}
{{- end -}}

{{- define "culvert-server.callersServiceName" -}}
{{- default (include "culvert-server.fullname" .) .Values.callers.service.name -}}
{{- end -}}

{{/*
The Services for agents, as a YAML list of {name, hosts, pod, nodePort}: one, or one for each replica of a StatefulSet.
*/}}
{{- define "culvert-server.agentServices" -}}
{{- $base := default (printf "%s-agents" (include "culvert-server.fullname" .)) .Values.agents.service.name -}}
{{- $nodePorts := .Values.agents.service.nodePorts -}}
{{- $hosts := .Values.agents.hosts -}}
{{- if include "culvert-server.statefulSet" . -}}
{{- range $i := until (int .Values.replicas) }}
- name: {{ printf "%s-%d" $base $i }}
  pod: {{ printf "%s-%d" (include "culvert-server.fullname" $) $i }}
  nodePort: {{ if lt $i (len $nodePorts) }}{{ index $nodePorts $i | int }}{{ else }}0{{ end }}
  hosts: {{ if lt $i (len $hosts) }}{{ list (index $hosts $i) | toJson }}{{ else }}[]{{ end }}
{{- end }}
{{- else }}
- name: {{ $base }}
  pod: ""
  nodePort: {{ if $nodePorts }}{{ first $nodePorts | int }}{{ else }}0{{ end }}
  hosts: {{ toJson $hosts }}
{{- end }}
{{- end -}}

{{/* Not empty where the pods are those of a StatefulSet. */}}
{{- define "culvert-server.statefulSet" -}}
{{- if and (eq .Values.mode "standalone") (eq .Values.workload "StatefulSet") -}}true{{- end -}}
{{- end -}}

{{/* The Service whose endpoints are counted, as namespace/name; empty: none. A StatefulSet has one for each pod. */}}
{{- define "culvert-server.countedService" -}}
{{- $several := and (eq .Values.mode "standalone") (eq .Values.workload "Deployment") (gt (int .Values.replicas) 1) -}}
{{- if or (eq .Values.agents.countServers "endpoints") (and (eq .Values.agents.countServers "auto") $several) -}}
{{- $service := include "culvert-server.agentServices" . | fromYamlArray | first -}}
{{ .Release.Namespace }}/{{ $service.name }}
{{- end -}}
{{- end -}}

{{/*
Not empty where agents have a tunnel to each pod, so that a pod can wait for its agents before callers come to it. Those of
a fleet behind one address have a tunnel to some of the pods.
*/}}
{{- define "culvert-server.eachReached" -}}
{{- if eq .Values.mode "standalone" -}}
{{- if or (include "culvert-server.statefulSet" .) (and (include "culvert-server.countedService" .) (not (include "culvert-server.fleet" .))) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Not empty where a pod is ready only while an agent is connected to it. One of a fleet is ready, too, while it can ask the
directory: it waits for agents only without that, and never by itself.
*/}}
{{- define "culvert-server.waitsForAgents" -}}
{{- $set := toString (get .Values.options "ready-needs-agent") -}}
{{- if and (include "culvert-server.eachReached" .) (ne $set "false") -}}
true
{{- else if and (eq .Values.mode "standalone") (include "culvert-server.fleet" .) (eq $set "true") -}}
true
{{- end -}}
{{- end -}}

{{/* Not empty where the pods ask the API of their cluster. */}}
{{- define "culvert-server.asksApi" -}}
{{- if or (include "culvert-server.tokenReview" .) (include "culvert-server.countedService" .) -}}true{{- end -}}
{{- end -}}

{{/* Port of the Services for agents. */}}
{{- define "culvert-server.agentServicePort" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- default (int $ports.agents) (int .Values.agents.service.port) -}}
{{- end -}}

{{- define "culvert-server.callersServicePort" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- default (int $ports.callers) (int .Values.callers.service.port) -}}
{{- end -}}

{{/* Port at a host of a Service for agents; NODEPORT where Kubernetes chooses it. Argument: (dict "root" $ "service" one of culvert-server.agentServices). */}}
{{- define "culvert-server.externalPort" -}}
{{- $values := .root.Values -}}
{{- if int $values.agents.externalPort -}}
{{- int $values.agents.externalPort -}}
{{- else if $values.router.enabled -}}
{{- int $values.router.service.port -}}
{{- else if or $values.gateway.tlsRoute.enabled $values.route.enabled $values.ingress.enabled -}}
443
{{- else if eq $values.agents.service.type "NodePort" -}}
{{- default "NODEPORT" .service.nodePort -}}
{{- else -}}
{{- include "culvert-server.agentServicePort" .root -}}
{{- end -}}
{{- end -}}

{{/*
Every URL that an agent is given, as a YAML list. Without agents.hosts those inside this cluster. NAME is a label in place of
a wildcard.
*/}}
{{- define "culvert-server.agentUrls" -}}
{{- $path := include "culvert-server.urlPath" . }}
{{- range include "culvert-server.agentServices" . | fromYamlArray }}
{{- if .hosts }}
{{- $host := first .hosts | replace "*" "NAME" }}
- wss://{{ ternary (printf "[%s]" $host) $host (contains ":" $host) }}:{{ include "culvert-server.externalPort" (dict "root" $ "service" .) }}{{ $path }}
{{- else }}
- wss://{{ .name }}.{{ $.Release.Namespace }}.svc:{{ include "culvert-server.agentServicePort" $ }}{{ $path }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Path of the URLs, where it is not the one that agents take by themselves. */}}
{{- define "culvert-server.urlPath" -}}
{{- $path := dig "agent-path" "" .Values.options -}}
{{- if ne $path "/culvert/v1/tunnel" -}}{{- $path -}}{{- end -}}
{{- end -}}

{{/* Names of a Service inside the cluster, as a YAML list. Argument: (dict "root" $ "name" name). */}}
{{- define "culvert-server.serviceNames" -}}
{{- $of := printf "%s.%s" .name .root.Release.Namespace }}
- {{ .name }}
- {{ $of }}
- {{ $of }}.svc
- {{ $of }}.svc.cluster.local
{{- end -}}

{{/* Names by which callers reach the server, as a YAML list. */}}
{{- define "culvert-server.callerNames" -}}
{{- include "culvert-server.serviceNames" (dict "root" . "name" (include "culvert-server.callersServiceName" .)) }}
- localhost
{{- range .Values.callers.hosts }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Names by which agents reach the server, as a YAML list. */}}
{{- define "culvert-server.agentNames" -}}
{{- range include "culvert-server.agentServices" . | fromYamlArray }}
{{- include "culvert-server.serviceNames" (dict "root" $ "name" .name) }}
{{- end }}
{{- range .Values.agents.hosts }}
- {{ . | quote }}
{{- end }}
{{- end -}}
