{{/*
Every template begins with this: keys of the values that are empty (null) get their defaults, as in
`options:` with nothing but comments below. files/defaults.json is generated from values.yaml. What is below a map whose
keys users choose stays as it is: `podSecurityContext: {runAsUser: null}` removes.
*/}}
{{- define "culvert-agent.defaults" -}}
{{- include "culvert-agent.fill" (list .Values (.Files.Get "files/defaults.json" | fromJson)) -}}
{{- end -}}

{{/* (list VALUES DEFAULTS): a default is in a list, and maps hold those below them. */}}
{{- define "culvert-agent.fill" -}}
{{- $values := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- $missing := kindIs "invalid" (index $values $key) -}}
{{- if kindIs "map" $default -}}
{{- if $missing -}}{{- $_ := set $values $key dict -}}{{- end -}}
{{- include "culvert-agent.fill" (list (index $values $key) $default) -}}
{{- else if $missing -}}
{{- $_ := set $values $key (first $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
