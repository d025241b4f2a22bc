{{- define "cassia.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 45 | trimSuffix "-" -}}
{{- end -}}

{{- define "cassia.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "cassia.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "cassia.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The name of a role's Deployment and Service. For the role all, it is the full name without a suffix. */ -}}
{{- define "cassia.roleName" -}}
{{- if eq .role "all" }}{{ include "cassia.fullname" .root }}{{ else }}{{ include "cassia.fullname" .root }}-{{ .role }}{{ end -}}
{{- end -}}

{{- define "cassia.selector" -}}
app.kubernetes.io/name: {{ include "cassia.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "cassia.labels" -}}
{{ include "cassia.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "cassia.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "cassia.scheme" -}}
{{ if .Values.web.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- define "cassia.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "cassia.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Image pull secrets, and settings for scheduling: node selector, tolerations, priority. */ -}}
{{- define "cassia.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- /* The template of a pod that runs cassia serve. Arguments: root, role, resources. */ -}}
{{- define "cassia.pod" -}}
{{- $v := .root.Values -}}
metadata:
  labels: {{- include "cassia.labels" . | nindent 4 }}
    {{- with $v.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- if or $v.podAnnotations $v.limits }}
  annotations:
    {{- with $v.limits }}
    # Changed limits restart the pods, because the process doesn't reload them by itself.
    checksum/limits: {{ toYaml . | sha256sum }}
    {{- end }}
    {{- with $v.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # Stopping takes only seconds, because acknowledged samples are already stored.
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  securityContext: {{- include "cassia.podSecurity" .root | nindent 4 }}
  {{- include "cassia.placement" .root | nindent 2 }}
  {{- with $v.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $v.mode "cassandra" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "cassia.selector" . | nindent 10 }}
  {{- end }}
  containers:
    - name: cassia
      image: {{ include "cassia.image" .root | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        - serve
        {{- if eq $v.mode "single" }}
        - --storage.path=/data/cassia
        {{- else }}
        - --target={{ .role }}
        - --storage.engine=cassandra
        - --cassandra.hosts={{ join "," $v.cassandra.hosts }}
        - --cassandra.keyspace={{ $v.cassandra.keyspace }}
        - --cassandra.consistency={{ $v.cassandra.consistency }}
        {{- with $v.cassandra.localDC }}
        - --cassandra.local-dc={{ . }}
        {{- end }}
        {{- with $v.cassandra.replication }}
        - --cassandra.replication={{ . }}
        {{- end }}
        {{- with $v.cassandra.username }}
        - --cassandra.username={{ . }}
        {{- end }}
        {{- end }}
        {{- range $what, $long := $v.retention }}
        - --retention.{{ $what }}={{ $long }}
        {{- end }}
        {{- if or $v.adminAPI.enabled $v.backup.enabled }}
        - --web.enable-admin-api
        {{- end }}
        {{- if $v.auth.existingSecret }}
        - --auth.file=/etc/cassia/auth/auth.yml
        {{- end }}
        {{- if $v.web.existingSecret }}
        - --web.config.file=/etc/cassia/web/web.yml
        {{- end }}
        {{- if $v.limits }}
        - --limits.file=/etc/cassia/limits/limits.yml
        {{- end }}
        {{- range $v.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- if and (eq $v.mode "cassandra") $v.cassandra.existingSecret }}
      env:
        - name: CASSIA_CASSANDRA_PASSWORD
          valueFrom: {secretKeyRef: {name: {{ $v.cassandra.existingSecret }}, key: {{ $v.cassandra.secretKey }}}}
      {{- end }}
      ports:
        - {name: http, containerPort: 9201}
      # After a restart, Cassia accepts samples immediately. It answers queries once the head is loaded.
      startupProbe:
        httpGet: {path: /-/healthy, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /-/healthy, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /-/ready, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 5
      {{- with .resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "cassia.containerSecurity" .root | nindent 8 }}
      {{- include "cassia.mounts" .root | nindent 6 }}
{{- end -}}

{{- /* The volumeMounts of the container that runs cassia serve. The volumes of its pod are in cassia.volumes. */ -}}
{{- define "cassia.mounts" -}}
{{- $v := .Values -}}
{{- if or (eq $v.mode "single") $v.auth.existingSecret $v.web.existingSecret $v.limits -}}
volumeMounts:
  {{- if eq $v.mode "single" }}
  - {name: data, mountPath: /data}
  {{- end }}
  {{- if $v.auth.existingSecret }}
  - {name: auth, mountPath: /etc/cassia/auth, readOnly: true}
  {{- end }}
  {{- if $v.web.existingSecret }}
  - {name: web, mountPath: /etc/cassia/web, readOnly: true}
  {{- end }}
  {{- if $v.limits }}
  - {name: limits, mountPath: /etc/cassia/limits, readOnly: true}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "cassia.volumes" -}}
{{- $v := .Values -}}
{{- if or $v.auth.existingSecret $v.web.existingSecret $v.limits -}}
volumes:
  {{- with $v.auth.existingSecret }}
  - {name: auth, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- with $v.web.existingSecret }}
  - {name: web, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- if $v.limits }}
  - {name: limits, configMap: {name: {{ include "cassia.fullname" . }}-limits}}
  {{- end }}
{{- end -}}
{{- end -}}
