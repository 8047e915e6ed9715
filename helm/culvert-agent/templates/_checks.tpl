{{/* What values say together, which values.schema.json cannot check. Each message says what to set. */}}
{{- define "culvert-agent.checks" -}}
{{- with include "culvert-agent.fault" . | trim }}
{{- fail . }}
{{- end }}
{{- end }}

{{/* The first fault, as a sentence. */}}
{{- define "culvert-agent.fault" -}}
{{- $certificate := .Values.auth.certificate.existingSecret }}
{{- $caller := .Values.tests.caller }}
{{- $pac := .Values.proxy.pac }}
{{- if not .Values.servers }}
servers is empty: name at least one server, such as servers: ["wss://culvert.example.com:443"].
{{- else if and (eq .Values.auth.method "certificate") (not $certificate) }}
auth.certificate.existingSecret is empty: name the Secret with the agent's certificate, or set auth.method to token.
{{- else if and (eq .Values.auth.method "token") $certificate }}
auth.certificate.existingSecret has no effect with auth.method token: remove one of them.
{{- else if and (eq .Values.agentIdFrom "node") (ne .Values.kind "DaemonSet") }}
agentIdFrom: node needs kind: DaemonSet: two pods of a Deployment on one node would have the same id.
{{- else if eq (int .Values.ports.health) (int .Values.ports.admin) }}
ports.health and ports.admin are both {{ int .Values.ports.health }}: each listener needs a port of its own.
{{- else if and $caller.server (not $caller.existingSecret) }}
tests.caller.existingSecret is empty: name the Secret with the caller's certificate, or clear tests.caller.server.
{{- else if and .Values.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) }}
podMonitor.enabled: networkPolicy.metricsFrom is empty, so Prometheus reaches no agent: name its pods or namespace there.
{{- else if include "culvert-agent.noEviction" . }}
{{ include "culvert-agent.noEviction" . }}
{{- else if gt (len (compact (list $pac.url $pac.script $pac.existingConfigMap))) 1 }}
proxy.pac: set one of url, script and existingConfigMap, not several.
{{- else }}
{{- range $name, $ca := dict "serverCA" .Values.serverCA "proxy.ca" .Values.proxy.ca "outerCA" .Values.outerCA }}
{{- if gt (len (compact (list $ca.pem $ca.existingConfigMap $ca.existingSecret $ca.system))) 1 }}
{{ $name }}: set one of pem, existingConfigMap, existingSecret{{ if hasKey $ca "system" }} and system{{ end }}, not several.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Why no agent of the Deployment could ever be evicted. Kubernetes rounds percentages up. */}}
{{- define "culvert-agent.noEviction" -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- if and $budget.enabled (eq .Values.kind "Deployment") (int .Values.replicas) -}}
{{- $least := toString $budget.minAvailable -}}
{{- $stay := int (trimSuffix "%" $least) -}}
{{- if hasSuffix "%" $least -}}{{- $stay = ceil (divf (mulf (int .Values.replicas) $stay) 100) | int -}}{{- end -}}
{{- if and $least (ge $stay (int .Values.replicas)) -}}
podDisruptionBudget.minAvailable: {{ $least }} of {{ .Values.replicas }} agents leave none to evict, and no node could be drained: set it to less.
{{- else if and (not $least) (has (toString $budget.maxUnavailable) (list "0" "0%" "")) -}}
podDisruptionBudget.maxUnavailable: with 0 no node could be drained: set it to 1 or more, or podDisruptionBudget.enabled to false.
{{- end -}}
{{- end -}}
{{- end -}}
