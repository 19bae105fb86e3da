{{/* An image with its tag or digest, from a list of its values and the chart. */}}
{{- define "sushy-kubevirt.image" -}}
{{- $image := index . 0 -}}
{{- $tag := $image.tag | default (index . 1).AppVersion -}}
{{- $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ $tag }}{{ end -}}
{{- end }}

{{/* "true" on OpenShift, else nothing. */}}
{{- define "sushy-kubevirt.openshift" -}}
{{- if kindIs "bool" .Values.openshift }}{{ if .Values.openshift }}true{{ end }}
{{- else if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}true
{{- end -}}
{{- end }}

{{/* "none", or the user id of pods; nothing for that of the manifests. */}}
{{- define "sushy-kubevirt.user" -}}
{{- if not (kindIs "string" .Values.podUser) }}{{ int64 .Values.podUser }}
{{- else if eq .Values.podUser "none" }}none
{{- else if include "sushy-kubevirt.openshift" . }}none
{{- end -}}
{{- end }}

{{/* The imagePullPolicy of all pods; nothing for Kubernetes' default. */}}
{{- define "sushy-kubevirt.pullPolicy" -}}
{{- with .Values.imagePullPolicy | default (.Values.image).pullPolicy }}{{ . }}{{ end -}}
{{- end }}

{{/* The CPU request of BMCs, by an option of KubeVirtBMC's controller. */}}
{{- define "sushy-kubevirt.bmcCpu" -}}
{{- range (.Values.manager).args }}
{{- if hasPrefix "--agent-cpu-request=" . }}{{ trimPrefix "--agent-cpu-request=" . }}{{ end }}
{{- end -}}
{{- end }}
