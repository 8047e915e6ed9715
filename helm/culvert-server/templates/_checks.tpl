{{/* More of culvert-server.validate, one topic each. */}}
{{- define "culvert-server.checks" -}}
{{- include "culvert-server.checkNames" . -}}
{{- include "culvert-server.checkAgentPorts" . -}}
{{- include "culvert-server.checkClusters" . -}}
{{- include "culvert-server.checkAvailability" . -}}
{{- include "culvert-server.checkFleet" . -}}
{{- end -}}

{{/* Objects of one name, and names that the server's certificate would lack. */}}
{{- define "culvert-server.checkNames" -}}
{{- $services := list (include "culvert-server.callersServiceName" .) -}}
{{- range include "culvert-server.agentServices" . | fromYamlArray -}}{{- $services = append $services .name -}}{{- end -}}
{{- range $suffix := list "pods" "router" -}}
{{- $services = append $services (printf "%s-%s" (include "culvert-server.fullname" $) $suffix) -}}
{{- end -}}
{{- if ne (len $services) (len (uniq $services)) -}}
{{- fail (printf "agents.service.name, callers.service.name: two of the Services %s have one name: give each a name of its own." (join ", " $services)) -}}
{{- end -}}
{{- if ne .Values.tls.source "existing" -}}
{{- $route := .Values.gateway.tlsRoute -}}
{{- if and $route.enabled (not (include "culvert-server.statefulSet" .)) -}}
{{- range $route.hostnames -}}
{{- if not (include "culvert-server.covers" (dict "names" $.Values.agents.hosts "name" .)) -}}
{{- fail (printf "agents.hosts: add %s, to which gateway.tlsRoute.hostnames lead agents: the server's certificate has no other names." .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.egress.url (not (include "culvert-server.hasClusters" .)) (ne (include "culvert-server.transport" .) "socket") -}}
{{- $host := (urlParse .Values.egress.url).hostname -}}
{{- $names := include "culvert-server.callerNames" . | fromYamlArray | concat .Values.agents.hosts -}}
{{- if not (include "culvert-server.covers" (dict "names" $names "name" $host)) -}}
{{- fail (printf "callers.hosts: add %s, the host of egress.url: the server's certificate has no other names." $host) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty where one of the names is this one, or a wildcard for it. Argument: (dict "names" list "name" name). */}}
{{- define "culvert-server.covers" -}}
{{- $parent := regexReplaceAll "^[^.]+" .name "*" -}}
{{- if or (has .name .names) (has $parent .names) -}}true{{- end -}}
{{- end -}}

{{- define "culvert-server.checkAgentPorts" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $service := .Values.agents.service -}}
{{- if include "culvert-server.terminates" . | eq "true" -}}
{{- if not (int $ports.agentsInsecure) -}}
{{- fail "ports.agentsInsecure: an ingress with termination terminate leads to this port: set it to another number than 0." -}}
{{- end -}}
{{- if and (int $ports.agents) (eq (include "culvert-server.agentServicePort" .) (toString (int $ports.agentsInsecure))) -}}
{{- fail "agents.service.port: it is the number of ports.agentsInsecure, which the same Service has: change one of them." -}}
{{- end -}}
{{- if ne $service.type "ClusterIP" -}}
{{- fail "agents.service.type: with ingress.termination terminate, the Service has a port in clear text: set it to ClusterIP." -}}
{{- end -}}
{{- end -}}
{{- $router := .Values.router -}}
{{- if and $router.enabled (not (int $ports.agents)) (not $router.routes) (not $router.existingConfigMap) -}}
{{- fail "ports.agents: the router leads to this port: set it to another number than 0, or set router.routes." -}}
{{- end -}}
{{- $services := include "culvert-server.agentServices" . | fromYamlArray -}}
{{- if and $service.nodePorts (ne (len $service.nodePorts) (len $services)) -}}
{{- fail (printf "agents.service.nodePorts: there are %d Services for agents: name as many ports, or none." (len $services)) -}}
{{- end -}}
{{- end -}}

{{/* With one CA for agents and callers, a document without identities lets agents in as callers. */}}
{{- define "culvert-server.checkClusters" -}}
{{- $oneCA := ne .Values.tls.source "existing" -}}
{{- $callers := include "culvert-server.callersTls" . -}}
{{- range $cluster, $document := .Values.clusters.documents -}}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" $cluster) -}}
{{- fail (printf "clusters.documents.%s: a cluster needs a name of a-z, 0-9 and - inside, such as blue-1." $cluster) -}}
{{- end -}}
{{- range $side := list "agents" "callers" -}}
{{- $given := get $document $side | default dict -}}
{{- $byName := or $given.identities $given.ca (and (eq $side "agents") $given.token) -}}
{{- if and $oneCA (or (eq $side "agents") $callers) (not $byName) -}}
{{- fail (printf "clusters.documents.%s.%s.identities: one CA signs for agents and callers: say whose certificates are let in, such as [CN=%s-%s]." $cluster $side $cluster (trimSuffix "s" $side)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "culvert-server.checkAvailability" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and $budget.enabled (has (toString $budget.maxUnavailable) (list "0" "0%" "")) -}}
{{- fail "podDisruptionBudget.maxUnavailable: with 0 no node could be drained: set it to 1 or more, or podDisruptionBudget.enabled to false." -}}
{{- end -}}
{{- range $path, $options := dict "options" .Values.options "router.options" .Values.router.options -}}
{{- $address := dig "health-bind-address" "" $options -}}
{{- if regexMatch "^(127\\.|::1$|\\[::1\\]$|localhost$)" $address -}}
{{- fail (printf "%s.health-bind-address: the kubelet's probes do not reach %s: leave it out." $path $address) -}}
{{- end -}}
{{- end -}}
{{- end -}}
