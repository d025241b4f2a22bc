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

{{- /* The path prefix of all requests, without a slash at its end. */ -}}
{{- define "cassia.prefix" -}}
{{- $web := .Values.web -}}
{{- printf "/%s" (default (urlParse $web.externalURL).path $web.routePrefix | trimAll "/") | trimSuffix "/" -}}
{{- end -}}

{{- define "cassia.serviceAccount" -}}
{{- $account := .Values.serviceAccount -}}
{{- if $account.create }}{{ default (include "cassia.fullname" .) $account.name }}{{ else }}{{ $account.name }}{{ end -}}
{{- end -}}

{{- /* The files that values contain, as a list: the name of the volume and of the value, the name of the file, its content, and the flag that names it. */ -}}
{{- define "cassia.files" -}}
{{- $v := .root.Values -}}
{{- $files := list -}}
{{- if $v.limits }}{{ $files = append $files (dict "name" "limits" "file" "limits.yml" "content" $v.limits "flag" "--limits.file=") }}{{ end -}}
{{- if $v.relabel }}{{ $files = append $files (dict "name" "relabel" "file" "relabel.yml" "content" $v.relabel "flag" "--write.relabel-file=") }}{{ end -}}
{{- if $v.retentionFile }}{{ $files = append $files (dict "name" "retention" "file" "retention.yml" "content" $v.retentionFile "flag" "--retention.file=") }}{{ end -}}
{{- if has .role (list "all" "read" "config") -}}
{{- range $tenant, $rules := $v.rules }}{{ $files = append $files (dict "name" "rules" "file" (printf "%s.yml" $tenant) "content" $rules "flag" (printf "--rule.files=%s=" $tenant)) }}{{ end -}}
{{- end -}}
{{- toYaml (dict "list" $files) -}}
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
{{- $files := (include "cassia.files" . | fromYaml).list -}}
{{- $prefix := include "cassia.prefix" .root -}}
metadata:
  labels: {{- include "cassia.labels" . | nindent 4 }}
    {{- with $v.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- if or $v.podAnnotations $files }}
  annotations:
    {{- with $files }}
    # Changed files restart the pods, because the process doesn't reload them by itself.
    checksum/files: {{ toYaml . | sha256sum }}
    {{- end }}
    {{- with $v.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  {{- with include "cassia.serviceAccount" .root }}
  serviceAccountName: {{ . }}
  {{- end }}
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
        {{- with $v.web.externalURL }}
        - --web.external-url={{ . }}
        {{- end }}
        {{- with $v.web.routePrefix }}
        - --web.route-prefix={{ . }}
        {{- end }}
        # The names of the service, for requests through a sidecar.
        {{- $service := printf "%s.%s" (include "cassia.roleName" .) .root.Release.Namespace }}
        {{- range list $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) }}
        - --web.allowed-host={{ . }}
        {{- end }}
        {{- if $v.ingress.enabled }}
        {{- range $v.ingress.hosts }}
        - --web.allowed-host={{ .host }}
        {{- end }}
        {{- end }}
        {{- range $v.web.allowedHosts }}
        - --web.allowed-host={{ . }}
        {{- end }}
        {{- range $files }}
        - {{ .flag }}/etc/cassia/{{ .name }}/{{ .file }}
        {{- end }}
        {{- if and $v.rules (has .role (list "all" "read")) }}
        {{- range $v.alertmanagers }}
        - --alertmanager.url={{ . }}
        {{- end }}
        {{- end }}
        {{- with $v.backup.to }}
        - --backup.to={{ . }}
        - --backup.every={{ $v.backup.every }}
        - --backup.keep={{ $v.backup.keep }}
        {{- if $v.backup.keySecret }}
        - --backup.key-file=/etc/cassia/backup/backup.key
        {{- end }}
        {{- end }}
        {{- range $v.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      {{- if or $v.extraEnv (and (eq $v.mode "cassandra") $v.cassandra.existingSecret) }}
      env:
        {{- if and (eq $v.mode "cassandra") $v.cassandra.existingSecret }}
        - name: CASSIA_CASSANDRA_PASSWORD
          valueFrom: {secretKeyRef: {name: {{ $v.cassandra.existingSecret }}, key: {{ $v.cassandra.secretKey }}}}
        {{- end }}
        {{- with $v.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      {{- if and $v.backup.to $v.backup.existingSecret }}
      envFrom:
        - secretRef: {name: {{ $v.backup.existingSecret }}}
      {{- end }}
      ports:
        - {name: http, containerPort: 9201}
      # After a restart, Cassia accepts samples immediately. It answers queries once the head is loaded.
      startupProbe:
        httpGet: {path: {{ $prefix }}/-/healthy, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: {{ $prefix }}/-/healthy, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: {{ $prefix }}/-/ready, port: http, scheme: {{ include "cassia.scheme" .root }}}
        periodSeconds: 5
      {{- with .resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "cassia.containerSecurity" .root | nindent 8 }}
      {{- include "cassia.mounts" . | nindent 6 }}
{{- end -}}

{{- /* The volumeMounts of the container that runs cassia serve. The volumes of its pod are in cassia.volumes. */ -}}
{{- define "cassia.mounts" -}}
{{- $v := .root.Values -}}
{{- $files := (include "cassia.files" . | fromYaml).list -}}
{{- if or (eq $v.mode "single") $v.auth.existingSecret $v.web.existingSecret $files $v.extraVolumeMounts -}}
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
  {{- if and $v.backup.to $v.backup.keySecret }}
  - {name: backup-key, mountPath: /etc/cassia/backup, readOnly: true}
  {{- end }}
  {{- range include "cassia.fileNames" . | fromYamlArray }}
  - {name: {{ . }}, mountPath: /etc/cassia/{{ . }}, readOnly: true}
  {{- end }}
  {{- with $v.extraVolumeMounts }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The names of the volumes of cassia.files, each once. */ -}}
{{- define "cassia.fileNames" -}}
{{- $names := list -}}
{{- range (include "cassia.files" . | fromYaml).list }}{{ $names = append $names .name }}{{ end -}}
{{- toYaml (uniq $names) -}}
{{- end -}}

{{- define "cassia.volumes" -}}
{{- $v := .root.Values -}}
{{- $files := (include "cassia.files" . | fromYaml).list -}}
{{- if or $v.auth.existingSecret $v.web.existingSecret $files $v.extraVolumes (and $v.backup.to $v.backup.keySecret) -}}
volumes:
  {{- with $v.auth.existingSecret }}
  - {name: auth, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- with $v.web.existingSecret }}
  - {name: web, secret: {secretName: {{ . }}}}
  {{- end }}
  {{- if and $v.backup.to $v.backup.keySecret }}
  - {name: backup-key, secret: {secretName: {{ $v.backup.keySecret }}}}
  {{- end }}
  {{- $name := include "cassia.fullname" .root }}
  {{- range include "cassia.fileNames" . | fromYamlArray }}
  - {name: {{ . }}, configMap: {name: {{ $name }}-{{ . }}}}
  {{- end }}
  {{- with $v.extraVolumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}
{{- end -}}
