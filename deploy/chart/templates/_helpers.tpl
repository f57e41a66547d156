{{/* The enabled drivers by key, as YAML: each with the defaults, whether its pod is privileged, and absolute paths. */}}
{{- define "dra.drivers" -}}
{{- $found := dict }}
{{- range $key, $given := .Values.drivers }}
{{- $driver := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy $given) }}
{{- if $driver.enabled }}
{{- range $variable, $value := $driver.privilegedUnless }}
{{- if ne (get $driver.env $variable | toString) $value }}
{{- $_ := set $driver "privileged" true }}
{{- end }}
{{- end }}
{{- if $driver.privileged }}
{{- $driver = mergeOverwrite $driver $driver.whenPrivileged }}
{{- end }}
{{- range $each := $driver.hostPaths }}
{{- if not (hasPrefix "/" $each.path) }}
{{- $_ := set $each "path" (printf "%s/%s" $.Values.kubeletDir $each.path) }}
{{- end }}
{{- end }}
{{- $_ := set $found $key $driver }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "dra.labels" -}}
app.kubernetes.io/part-of: dra-sdk
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* What makes an object a part of a guard, given `hook`, when Helm makes it, and `weight`, its place in the order. */}}
{{- define "dra.guard" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The image of a container, given the chart's version. */}}
{{- define "dra.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .version .image.tag) }}
{{- end }}
{{- end }}
