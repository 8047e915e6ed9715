{{/* What a schema cannot refuse: values that do not go together. Each sentence says what to change. */}}
{{- define "culvert-server.validate" -}}
{{- $ports := include "culvert-server.ports" . | fromYaml -}}
{{- $transport := include "culvert-server.transport" . -}}
{{- $clusters := include "culvert-server.hasClusters" . -}}
{{- if eq .Values.mode "standalone" -}}
{{- if ne $transport "tcp" -}}
{{- fail "callers.transport: a unix socket reaches callers in the same pod only: set mode to sidecar, or callers.transport to tcp." -}}
{{- end -}}
{{- if not (int $ports.callers) -}}
{{- fail "ports.callers: callers of a standalone server come by this port: set it to another number than 0." -}}
{{- end -}}
{{- if and (eq (toString (get .Values.options "ready-needs-agent")) "true") (not (include "culvert-server.waitsForAgents" .)) -}}
{{- fail "options.ready-needs-agent: updates would never end, since agents stay with the old pod: set agents.countServers to endpoints, or workload to StatefulSet." -}}
{{- end -}}
{{- else -}}
{{- if not .Values.sidecar.podSelector -}}
{{- fail "sidecar.podSelector: set it to the labels of the kube-apiserver pods, which the Services select in mode sidecar." -}}
{{- end -}}
{{- if eq .Values.workload "StatefulSet" -}}
{{- fail "workload: mode sidecar has no pods of its own: leave workload at Deployment." -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
{{- fail "networkPolicy.enabled: in mode sidecar it would close kube-apiserver's own ports: set it to false, and extend the policy of that pod." -}}
{{- end -}}
{{- end -}}
{{- if and (include "culvert-server.statefulSet" .) (eq .Values.agents.countServers "endpoints") -}}
{{- fail "agents.countServers: a StatefulSet has one Service for each replica, and agents are given all: leave it at auto." -}}
{{- end -}}
{{- if not (int $ports.health) -}}
{{- fail "ports.health: probes ask this port: set it to another number than 0." -}}
{{- end -}}
{{- if and (not (int $ports.agents)) (not (int $ports.agentsInsecure)) -}}
{{- fail "ports.agents: set it, or let agents come through an ingress with termination terminate." -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $name, $number := $ports -}}
{{- if int $number -}}
{{- with get $seen (toString $number) -}}
{{- fail (printf "ports: %s and %s are both %v: give each port a number of its own." . $name $number) -}}
{{- end -}}
{{- $_ := set $seen (toString $number) $name -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.tls.source "existing" -}}
{{- $tls := .Values.tls.existing -}}
{{- if not $clusters -}}
{{- if and (int $ports.agents) (not $tls.agents.secret) -}}
{{- fail "tls.existing.agents.secret: name the Secret with the certificate that the server shows to agents." -}}
{{- end -}}
{{- if and (int $ports.callers) (not $tls.callers.secret) -}}
{{- fail "tls.existing.callers.secret: name the Secret with the certificate that the server shows to callers." -}}
{{- end -}}
{{- if and (int $ports.callers) (not (or $tls.callers.ca.secret $tls.callers.ca.configMap)) -}}
{{- fail "tls.existing.callers.ca: name the Secret or ConfigMap with the CA of callers' certificates." -}}
{{- end -}}
{{- if not (or $tls.agents.ca.secret $tls.agents.ca.configMap .Values.agents.token.enabled) -}}
{{- fail "tls.existing.agents.ca: name the Secret or ConfigMap with the CA of agents' certificates, or set agents.token.enabled to true." -}}
{{- end -}}
{{- end -}}
{{- range $side := list "agents" "callers" "client" "peers" -}}
{{- $ca := get (get $tls $side) "ca" -}}
{{- if and $ca.secret $ca.configMap -}}
{{- fail (printf "tls.existing.%s.ca: it is one Secret or one ConfigMap: leave one of both empty." $side) -}}
{{- end -}}
{{- end -}}
{{- if and $tls.client.secret (not (or $tls.client.ca.secret $tls.client.ca.configMap)) -}}
{{- fail "tls.existing.client.ca: name the Secret or ConfigMap with the CA by which callers know the server." -}}
{{- end -}}
{{- end -}}
{{- if .Values.agents.token.enabled -}}
{{- if $clusters -}}
{{- fail "agents.token.enabled: set it to false: with clusters, agents.token of each document says whose tokens are let in." -}}
{{- end -}}
{{- range $key := list "audience" "namespace" "serviceAccount" -}}
{{- if not (get $.Values.agents.token $key) -}}
{{- fail (printf "agents.token.%s: set it, since agents.token.enabled is true." $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $source := .Values.clusters.from -}}
{{- if eq (empty $source.configMap) (empty $source.secret) -}}
{{- fail (printf "clusters.from[%d]: set either configMap or secret." $i) -}}
{{- end -}}
{{- with omit $source "configMap" "secret" "folder" "keys" "optional" | keys -}}
{{- fail (printf "clusters.from[%d].%s: there is no such key: use configMap, secret, folder, keys and optional." $i (first .)) -}}
{{- end -}}
{{- if and $source.folder (not $source.keys) -}}
{{- fail (printf "clusters.from[%d].keys: name the keys that are put into the folder %s." $i $source.folder) -}}
{{- end -}}
{{- end -}}
{{- range $name, $document := .Values.clusters.documents -}}
{{- if and (hasKey $document "name") (ne (get $document "name") $name) -}}
{{- fail (printf "clusters.documents.%s.name: the key is the name already: leave name out." $name) -}}
{{- end -}}
{{- end -}}
{{- $hosts := .Values.agents.hosts -}}
{{- if and (include "culvert-server.statefulSet" .) $hosts (ne (len $hosts) (int .Values.replicas)) -}}
{{- fail (printf "agents.hosts: a StatefulSet of %d replicas needs %d names, one for each, in order." (int .Values.replicas) (int .Values.replicas)) -}}
{{- end -}}
{{- $tlsRoute := .Values.gateway.tlsRoute -}}
{{- if $tlsRoute.enabled -}}
{{- if not $tlsRoute.parentRefs -}}
{{- fail "gateway.tlsRoute.parentRefs: name the Gateway that the route belongs to." -}}
{{- end -}}
{{- if not (or $hosts $tlsRoute.hostnames) -}}
{{- fail "agents.hosts: gateway.tlsRoute needs the names by which agents reach the server." -}}
{{- end -}}
{{- if and (include "culvert-server.statefulSet" .) (not $hosts) -}}
{{- fail "agents.hosts: gateway.tlsRoute needs a name for each replica of a StatefulSet, in order." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.route.enabled (not $hosts) -}}
{{- fail "agents.hosts: route needs the names by which agents reach the server." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not $hosts) -}}
{{- fail "agents.hosts: ingress needs the names by which agents reach the server." -}}
{{- end -}}
{{- if or $tlsRoute.enabled .Values.route.enabled (and .Values.ingress.enabled (eq .Values.ingress.termination "passthrough")) -}}
{{- if not (int $ports.agents) -}}
{{- fail "ports.agents: gateway.tlsRoute, route and an ingress in passthrough lead to this port: set it to another number than 0." -}}
{{- end -}}
{{- end -}}
{{- if .Values.ingress.enabled -}}
{{- if eq .Values.ingress.termination "passthrough" -}}
{{- if not (regexMatch "passthrough" (toJson .Values.ingress.annotations)) -}}
{{- fail "ingress.annotations: add your controller's annotation for passthrough (ingress-nginx: nginx.ingress.kubernetes.io/ssl-passthrough: \"true\"), or set ingress.termination to terminate." -}}
{{- end -}}
{{- else -}}
{{- if not .Values.ingress.controllerCIDRs -}}
{{- fail "ingress.controllerCIDRs: with termination terminate, name the networks of the ingress controller's pods." -}}
{{- end -}}
{{- $inner := dig "inner-tls" "never" .Values.options -}}
{{- if and (eq $inner "never") (not .Values.agents.token.enabled) (not $clusters) -}}
{{- fail "ingress.termination: no certificate passes an ingress that ends TLS: set options.inner-tls to auto, or agents.token.enabled to true." -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.router.enabled (not .Values.router.routes) (not .Values.router.existingConfigMap) (not $hosts) -}}
{{- fail "router.routes: set it, or router.existingConfigMap, or agents.hosts: a router needs names that lead to a server." -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.serviceMonitor.enabled) -}}
{{- fail "prometheusRule.enabled: alerts need samples: set serviceMonitor.enabled to true." -}}
{{- end -}}
{{- if and (int .Values.terminationGracePeriodSeconds) (lt (int .Values.terminationGracePeriodSeconds) (include "culvert-server.gracePeriod" . | int)) -}}
{{- fail (printf "terminationGracePeriodSeconds: preStopSeconds, options.shutdown-delay, options.drain-timeout and 10 seconds are %s: set it to that at least, or to 0." (include "culvert-server.gracePeriod" .)) -}}
{{- end -}}
{{- if and .Values.egress.create (empty .Values.egress.selections) -}}
{{- fail "egress.selections: name what goes through culvert, for example [cluster]." -}}
{{- end -}}
{{- include "culvert-server.checks" . -}}
{{- end -}}
