package api

import (
	"os"
	"runtime"
	"runtime/debug"

	promapi "github.com/prometheus/prometheus/web/api/v1"
)

// PrometheusVersion is the version of Prometheus whose query language and API this package implements. Grafana's data
// source chooses its features by this version.
const PrometheusVersion = "3.15.0"

// Version identifies the build of Cassia.
type Version struct {
	Cassia, Revision, Branch, BuildUser, BuildDate string
}

// buildInfo is Prometheus' build information, extended by the name of the program.
type buildInfo struct {
	Application string `json:"application"`
	Cassia      string `json:"cassiaVersion"`
	Version     string `json:"version"`
	Revision    string `json:"revision"`
	Branch      string `json:"branch"`
	BuildUser   string `json:"buildUser"`
	BuildDate   string `json:"buildDate"`
	GoVersion   string `json:"goVersion"`
}

func (v Version) info() buildInfo {
	return buildInfo{
		Application: "Cassia", Cassia: v.Cassia, Version: PrometheusVersion,
		Revision: v.Revision, Branch: v.Branch, BuildUser: v.BuildUser, BuildDate: v.BuildDate,
		GoVersion: runtime.Version(),
	}
}

func (a *api) runtimeInfo() (promapi.RuntimeInfo, error) {
	directory, err := os.Getwd()
	if err != nil {
		return promapi.RuntimeInfo{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return promapi.RuntimeInfo{}, err
	}
	info := promapi.RuntimeInfo{
		StartTime: a.Started, CWD: directory, Hostname: hostname, ServerTime: a.Now().UTC(),
		ReloadConfigSuccess: true, LastConfigTime: a.Started,
		GoroutineCount: runtime.NumGoroutine(), GOMAXPROCS: runtime.GOMAXPROCS(0), GOMEMLIMIT: debug.SetMemoryLimit(-1),
		GOGC: os.Getenv("GOGC"), GODEBUG: os.Getenv("GODEBUG"), StorageRetention: a.Retention,
	}
	if a.Reloads != nil {
		info.ReloadConfigSuccess, info.LastConfigTime = a.Reloads()
	}
	return info, nil
}
