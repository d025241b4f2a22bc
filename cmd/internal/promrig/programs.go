package promrig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Cassia returns a cassia server with its data below dir.
func Cassia(path, dir, address string, args ...string) Program {
	return Program{
		Name: "cassia", Path: path, Address: address, ReadyPath: "/-/ready", Log: filepath.Join(dir, "cassia.log"),
		Args: append([]string{
			"serve", "--web.listen-address=" + address, "--storage.path=" + filepath.Join(dir, "data"),
			"--web.enable-admin-api",
		}, args...),
	}
}

// Prometheus returns a Prometheus with the given configuration and its data below dir. It logs only warnings and
// errors, unless args contains --log.level.
func Prometheus(path, dir, address, config string, args ...string) (Program, error) {
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return Program{}, err
	}
	level := "--log.level=warn"
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--log.level=") }); i >= 0 {
		level, args = args[i], slices.Delete(slices.Clone(args), i, i+1)
	}
	return Program{
		Name: "prometheus", Path: path, Address: address, ReadyPath: "/-/ready",
		Log: filepath.Join(dir, "prometheus.log"),
		Args: append([]string{
			"--config.file=" + file, "--web.listen-address=" + address,
			"--storage.tsdb.path=" + filepath.Join(dir, "data"), level,
		}, args...),
	}, nil
}

// NodeExporter returns a node exporter that logs to dir.
func NodeExporter(path, dir, address string) Program {
	return Program{
		Name: "node exporter", Path: path, Address: address, ReadyPath: "/",
		Log:  filepath.Join(dir, "node_exporter.log"),
		Args: []string{"--web.listen-address=" + address, "--no-collector.systemd", "--log.level=warn"},
	}
}

// Alertmanager returns an Alertmanager with the given configuration and its data below dir.
func Alertmanager(path, dir, address, config string) (Program, error) {
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return Program{}, err
	}
	return Program{
		Name: "alertmanager", Path: path, Address: address, ReadyPath: "/-/ready",
		Log: filepath.Join(dir, "alertmanager.log"),
		Args: []string{
			"--config.file=" + file, "--web.listen-address=" + address, "--storage.path=" + filepath.Join(dir, "data"),
			"--cluster.listen-address=", "--log.level=warn",
		},
	}, nil
}
