{{- define "ocadm.namespaces" -}}
{{- if ne .Release.Namespace "onecloud" }}{{ fail "install the chart in namespace onecloud: --namespace onecloud --create-namespace" }}{{ end -}}
{{- concat (list "onecloud") (without (.Values.namespaces | default list) "onecloud" | uniq | sortAlpha) | join "," -}}
{{- end -}}
