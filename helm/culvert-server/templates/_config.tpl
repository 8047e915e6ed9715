{{/* The file of --config: what the chart decides, with the options of the values. */}}
{{- define "culvert-server.config" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $tls := include "culvert-server.tls" . | fromYaml -}}
{{- $config := dict "server-port" (int $ports.callers) "agent-port" (int $ports.agents)
  "health-port" (int $ports.health) "admin-port" (int $ports.admin) -}}
{{- $socket := include "culvert-server.socket" . -}}
{{- /* With clusters, each document names a socket of its own (callers.uds). */ -}}
{{- if and $socket (not (include "culvert-server.hasClusters" .)) -}}
{{- $_ := set $config "uds-name" $socket -}}
{{- end -}}
{{- if include "culvert-server.callersTls" . -}}
{{- $_ := set $config "server-cert" "/etc/culvert/callers/tls.crt" -}}
{{- $_ := set $config "server-key" "/etc/culvert/callers/tls.key" -}}
{{- if or $tls.callers.ca.secret $tls.callers.ca.configMap -}}
{{- $_ := set $config "server-ca-cert" "/etc/culvert/callers/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if include "culvert-server.agentsTls" . -}}
{{- $_ := set $config "cluster-cert" "/etc/culvert/agents/tls.crt" -}}
{{- $_ := set $config "cluster-key" "/etc/culvert/agents/tls.key" -}}
{{- if or $tls.agents.ca.secret $tls.agents.ca.configMap -}}
{{- $_ := set $config "cluster-ca-cert" "/etc/culvert/agents/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if int $ports.http -}}
{{- $_ := set $config "http-port" (int $ports.http) -}}
{{- $_ := set $config "http-bind-address" (ternary "::" "0.0.0.0" (has "IPv6" .Values.callers.service.ipFamilies)) -}}
{{- end -}}
{{- if int $ports.agentsInsecure -}}
{{- $_ := set $config "agent-insecure-port" (int $ports.agentsInsecure) -}}
{{- $_ := set $config "agent-insecure-bind-address" .Values.ingress.bindAddress -}}
{{- $_ := set $config "agent-insecure-trusted-cidrs" .Values.ingress.controllerCIDRs -}}
{{- end -}}
{{- if include "culvert-server.hasClusters" . -}}
{{- $_ := set $config "clusters" "/etc/culvert/clusters" -}}
{{- else if .Values.agents.token.enabled -}}
{{- with .Values.agents.token -}}
{{- $_ := set $config "authentication-audience" .audience -}}
{{- $_ := set $config "agent-namespace" .namespace -}}
{{- $_ := set $config "agent-service-account" .serviceAccount -}}
{{- if .kubeconfig.secret -}}
{{- $_ := set $config "kubeconfig" "/etc/culvert/kubeconfig/kubeconfig" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* In an update callers come to the new pod before the agents do, which move when the old one gets SIGTERM. */ -}}
{{- if eq .Values.mode "standalone" -}}
{{- $_ := set $config "agent-wait" (printf "%ds" (min 6 (add (int .Values.preStopSeconds) 2))) -}}
{{- end -}}
{{- with include "culvert-server.countedService" . -}}
{{- $_ := set $config "server-count-service" . -}}
{{- end -}}
{{- /* Agents come to each replica: callers do when its agents are back, not before. */ -}}
{{- if include "culvert-server.eachReached" . -}}
{{- $_ := set $config "ready-needs-agent" true -}}
{{- end -}}
{{- if include "culvert-server.fleet" . -}}
{{- $config = merge $config (include "culvert-server.fleetConfig" . | fromYaml) -}}
{{- end -}}
{{- /* One CA signs for both sides: who is let in where is told by name. */ -}}
{{- if and (ne .Values.tls.source "existing") (not (include "culvert-server.hasClusters" .)) -}}
{{- $_ := set $config "agent-identities" (list "CN=culvert-agent") -}}
{{- $_ := set $config "caller-identities" (list "CN=culvert-client") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config .Values.options) -}}
{{- end -}}

{{/* The documents of clusters.documents, each with its name, as a YAML map from file to text. */}}
{{- define "culvert-server.documents" -}}
{{- range $name, $document := .Values.clusters.documents }}
{{ $name }}.yaml: {{ merge (dict "name" $name) $document | toYaml | toJson }}
{{- end }}
{{- end -}}

{{/* Every option of the router. */}}
{{- define "culvert-server.routerConfig" -}}
{{- $ports := .Values.router.ports -}}
{{- $config := dict "routes" "/etc/culvert/routes" "port" (int $ports.tls)
  "health-port" (int $ports.health) "admin-port" (int $ports.admin) -}}
{{- toYaml (mergeOverwrite $config .Values.router.options) -}}
{{- end -}}
