package examples

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	k8syaml "sigs.k8s.io/yaml"
)

// manifests contains the resources in a Kubernetes manifest file, as Kubernetes' own types.
type manifests struct {
	services    []core.Service
	configs     map[string]core.ConfigMap
	pods        map[string]core.PodTemplateSpec
	volumes     map[string][]core.PersistentVolumeClaim
	disruptions []policy.PodDisruptionBudget
	// claims contains the claims outside of StatefulSets. jobs and monitors refer to pods in the same file.
	claims   map[string]core.PersistentVolumeClaim
	jobs     []batch.CronJob
	monitors []monitoring.ServiceMonitor
	rules    []monitoring.PrometheusRule
	// ingresses refer to services, and pods refer to accounts.
	ingresses []networking.Ingress
	accounts  map[string]core.ServiceAccount
}

func readManifests(t *testing.T, file string) manifests {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	m := manifests{
		configs: map[string]core.ConfigMap{}, pods: map[string]core.PodTemplateSpec{},
		volumes: map[string][]core.PersistentVolumeClaim{}, claims: map[string]core.PersistentVolumeClaim{},
		accounts: map[string]core.ServiceAccount{},
	}
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	buf := make([]byte, len(text)+1)
	for {
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			return m
		}
		require.NoError(t, err)
		read := func(into any) { require.NoError(t, k8syaml.UnmarshalStrict(buf[:n], into), "%s", buf[:n]) }
		var kind struct{ APIVersion, Kind string }
		require.NoError(t, k8syaml.Unmarshal(buf[:n], &kind))
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 Service":
			m.services = append(m.services, core.Service{})
			read(&m.services[len(m.services)-1])
		case "v1 ConfigMap":
			var c core.ConfigMap
			read(&c)
			m.configs[c.Name] = c
		case "apps/v1 StatefulSet":
			var s apps.StatefulSet
			read(&s)
			require.Subset(t, s.Spec.Template.Labels, s.Spec.Selector.MatchLabels)
			m.pods[s.Name], m.volumes[s.Name] = s.Spec.Template, s.Spec.VolumeClaimTemplates
			require.Contains(t, serviceNames(m.services), s.Spec.ServiceName)
			require.EqualValues(t, 1, *s.Spec.Replicas, "a data directory allows only one process")
		case "apps/v1 Deployment":
			var d apps.Deployment
			read(&d)
			require.Subset(t, d.Spec.Template.Labels, d.Spec.Selector.MatchLabels)
			m.pods[d.Name] = d.Spec.Template
		case "policy/v1 PodDisruptionBudget":
			m.disruptions = append(m.disruptions, policy.PodDisruptionBudget{})
			read(&m.disruptions[len(m.disruptions)-1])
		case "v1 PersistentVolumeClaim":
			var c core.PersistentVolumeClaim
			read(&c)
			m.claims[c.Name] = c
		case "batch/v1 CronJob":
			m.jobs = append(m.jobs, batch.CronJob{})
			read(&m.jobs[len(m.jobs)-1])
		case "monitoring.coreos.com/v1 ServiceMonitor":
			m.monitors = append(m.monitors, monitoring.ServiceMonitor{})
			read(&m.monitors[len(m.monitors)-1])
		case "monitoring.coreos.com/v1 PrometheusRule":
			m.rules = append(m.rules, monitoring.PrometheusRule{})
			read(&m.rules[len(m.rules)-1])
		case "networking.k8s.io/v1 Ingress":
			m.ingresses = append(m.ingresses, networking.Ingress{})
			read(&m.ingresses[len(m.ingresses)-1])
		case "v1 ServiceAccount":
			var a core.ServiceAccount
			read(&a)
			m.accounts[a.Name] = a
		default:
			require.Fail(t, "nobody looks at this", "%s of %s", kind, file)
		}
	}
}

func serviceNames(list []core.Service) (names []string) {
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// manifestFiles returns the example manifests, and the rendered examples of the chart in docker/helm.
func manifestFiles(t *testing.T) []string {
	files, err := filepath.Glob(filepath.Join(folder, "kubernetes", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	charts, err := filepath.Glob("../helm/testdata/*.yaml")
	require.NoError(t, err)
	require.Len(t, charts, 5, "what the chart renders")
	return slices.Concat(files, charts)
}

// manifestCommands returns the command lines of the pods and jobs in the manifests.
func manifestCommands(t *testing.T) (all []command) {
	for _, file := range manifestFiles(t) {
		m := readManifests(t, file)
		where := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			args, secrets := m.command(t, m.pods[name])
			c := command{
				File: where, Name: name, Args: args, Secrets: secrets, Port: portOf(args), Files: m.files(m.pods[name]),
			}
			for _, monitor := range m.monitors {
				c.Scrape = append(c.Scrape, scrapeOf(monitor))
			}
			all = append(all, c)
		}
		for _, job := range m.jobs {
			all = append(all, command{
				File: where, Name: job.Name, Args: job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args,
			})
		}
	}
	return all
}

// command returns the arguments of a pod's container, with variables replaced by the values from ConfigMaps, and the
// variables that are set from secrets.
func (m *manifests) command(t *testing.T, pod core.PodTemplateSpec) (args, secrets []string) {
	require.Len(t, pod.Spec.Containers, 1)
	c := pod.Spec.Containers[0]
	args = slices.Clone(c.Args)
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		from := e.ValueFrom.ConfigMapKeyRef
		if from == nil {
			secrets = append(secrets, e.Name)
			continue
		}
		value, ok := m.configs[from.Name].Data[from.Key]
		require.True(t, ok, "%s of ConfigMap %s", from.Key, from.Name)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$("+e.Name+")", value)
		}
	}
	for _, arg := range args {
		require.NotContains(t, arg, "$(", "every variable is known")
	}
	return args, secrets
}

func TestKubernetesManifests(t *testing.T) {
	for _, file := range manifestFiles(t) {
		m := readManifests(t, file)
		require.NotEmpty(t, m.pods, file)
		for name, pod := range m.pods {
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) { m.checkPod(t, name, pod) })
		}
		for _, s := range m.services {
			matching := m.selected(s.Spec.Selector)
			require.NotEmpty(t, matching, "service %s", s.Name)
			for _, p := range s.Spec.Ports {
				for _, pod := range matching {
					require.Equal(t, pod.Spec.Containers[0].Ports[0].Name, p.TargetPort.StrVal, "service %s", s.Name)
				}
			}
		}
		for _, d := range m.disruptions {
			require.Len(t, m.selected(d.Spec.Selector.MatchLabels), 1, d.Name)
		}
		for _, job := range m.jobs {
			m.checkBackup(t, job)
		}
		for _, monitor := range m.monitors {
			m.checkMonitor(t, monitor)
		}
		for _, ingress := range m.ingresses {
			for _, rule := range ingress.Spec.Rules {
				for _, path := range rule.HTTP.Paths {
					require.Contains(t, serviceNames(m.services), path.Backend.Service.Name)
				}
			}
		}
		for _, rule := range m.rules {
			require.NotEmpty(t, rule.Spec.Groups)
			for _, group := range rule.Spec.Groups {
				require.NotEmpty(t, group.Rules, group.Name)
			}
		}
	}
}

// selected returns the pods that have all of the given labels.
func (m *manifests) selected(want map[string]string) (found []core.PodTemplateSpec) {
	for _, pod := range m.pods {
		if subset(want, pod.Labels) {
			found = append(found, pod)
		}
	}
	return found
}

func (m *manifests) checkPod(t *testing.T, name string, pod core.PodTemplateSpec) {
	args, _ := m.command(t, pod)
	c, port := pod.Spec.Containers[0], portOf(args)
	require.Len(t, c.Ports, 1)
	require.Equal(t, port, strconv.Itoa(int(c.Ports[0].ContainerPort)))
	prefix := prefixOf(t, args)
	for path, probe := range map[string]*core.Probe{"/-/healthy": c.LivenessProbe, "/-/ready": c.ReadinessProbe} {
		require.Equal(t, prefix+path, probe.HTTPGet.Path)
		require.Equal(t, c.Ports[0].Name, probe.HTTPGet.Port.StrVal)
	}
	require.Equal(t, prefix+"/-/healthy", c.StartupProbe.HTTPGet.Path)
	if account := pod.Spec.ServiceAccountName; account != "" {
		require.Contains(t, m.accounts, account)
	}
	mounted := map[string]string{}
	for _, v := range c.VolumeMounts {
		mounted[v.Name] = v.MountPath
	}
	for _, claim := range m.volumes[name] {
		require.Contains(t, mounted, claim.Name)
		inside := slices.ContainsFunc(args, func(arg string) bool {
			return strings.HasPrefix(arg, "--storage.path="+mounted[claim.Name]+"/")
		})
		require.True(t, inside, "the data lie on the volume, in a directory that restore may make anew")
		delete(mounted, claim.Name)
	}
	m.checkVolumes(t, mounted, pod.Spec.Volumes)
	requireLocked(t, pod.Spec)
}

// checkVolumes checks that the volumes of a pod exist and are mounted, except the claims of its StatefulSet.
func (m *manifests) checkVolumes(t *testing.T, mounted map[string]string, volumes []core.Volume) {
	for _, v := range volumes {
		require.Contains(t, mounted, v.Name, "nobody mounts it")
		delete(mounted, v.Name)
		if v.ConfigMap != nil {
			require.Contains(t, m.configs, v.ConfigMap.Name)
		}
	}
	require.Empty(t, mounted, "volumes that aren't there")
}

// requireLocked checks that a pod has only the permissions that it needs, a memory limit, and a fixed image version.
func requireLocked(t *testing.T, pod core.PodSpec) {
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	c := pod.Containers[0]
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Positive(t, c.Resources.Limits.Memory().Value())
	require.NotEmpty(t, c.ImagePullPolicy)
	_, tag, _ := strings.Cut(c.Image, ":")
	require.NotContains(t, []string{"", "latest"}, tag, "a pod that restarts comes back as another version")
}

// checkBackup checks that a backup job fits the server that it backs up.
func (m *manifests) checkBackup(t *testing.T, job batch.CronJob) {
	pod := job.Spec.JobTemplate.Spec.Template
	requireLocked(t, pod.Spec)
	c := pod.Spec.Containers[0]
	require.Equal(t, "backup", c.Args[0])
	server, err := url.Parse(flagOf(c.Args, "url", ""))
	require.NoError(t, err)
	require.Contains(t, serviceNames(m.services), server.Hostname())

	affinity := pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	near := m.selected(affinity.LabelSelector.MatchLabels)
	require.Len(t, near, 1, "it runs beside the server, whose volume it mounts")
	require.Contains(t, near[0].Spec.Containers[0].Args, "--web.enable-admin-api", "the server makes a snapshot")
	path := c.Args[slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--storage.path=") })]
	require.Contains(t, near[0].Spec.Containers[0].Args, path)
	mounted := map[string]string{}
	for _, v := range c.VolumeMounts {
		mounted[v.Name] = v.MountPath
	}
	m.checkVolumes(t, mounted, pod.Spec.Volumes)
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.Name != "data" {
			require.Contains(t, m.claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
}

// checkMonitor checks that a ServiceMonitor selects at least one service, with an existing port and path.
func (m *manifests) checkMonitor(t *testing.T, monitor monitoring.ServiceMonitor) {
	found := 0
	for _, s := range m.services {
		if subset(monitor.Spec.Selector.MatchLabels, s.Labels) {
			require.Equal(t, s.Spec.Ports[0].Name, monitor.Spec.Endpoints[0].Port)
			require.Equal(t, "cassia", s.Labels[monitor.Spec.JobLabel], "the job that examples/rules ask for")
			found++
		}
	}
	require.Equal(t, len(m.services), found)
	require.Len(t, monitor.Spec.Endpoints, 1)
	for name, pod := range m.pods {
		args, _ := m.command(t, pod)
		require.Equal(t, prefixOf(t, args)+"/metrics", monitor.Spec.Endpoints[0].Path, name)
	}
}

// prefixOf returns the path prefix of a server with these arguments.
func prefixOf(t *testing.T, args []string) string {
	at, err := url.Parse(flagOf(args, "web.external-url", ""))
	require.NoError(t, err)
	return strings.TrimRight(flagOf(args, "web.route-prefix", at.Path), "/")
}

// files returns the contents of the files that a pod mounts from ConfigMaps, by path.
func (m *manifests) files(pod core.PodTemplateSpec) map[string]string {
	found := map[string]string{}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name == mount.Name && v.ConfigMap != nil {
				for key, text := range m.configs[v.ConfigMap.Name].Data {
					found[mount.MountPath+"/"+key] = text
				}
			}
		}
	}
	return found
}

// scrapeOf returns how the Prometheus operator scrapes the targets of a ServiceMonitor.
func scrapeOf(monitor monitoring.ServiceMonitor) (s scrape) {
	e := monitor.Spec.Endpoints[0]
	s = scrape{Path: e.Path}
	if e.Scheme != nil {
		s.Scheme = string(*e.Scheme)
	}
	if a := e.Authorization; a != nil {
		s.Token = a.Credentials.Name + "/" + a.Credentials.Key
	}
	if c := e.TLSConfig; c != nil {
		s.ServerName, s.CA = *c.ServerName, c.CA.Secret.Name+"/"+c.CA.Secret.Key
	}
	return s
}

// subset reports whether all contains all of the wanted labels.
func subset(want, all map[string]string) bool {
	for name, value := range want {
		if all[name] != value {
			return false
		}
	}
	return true
}
