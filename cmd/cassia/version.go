package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/common/version"

	"github.com/cassia-db/cassia/promql/api"
)

// unreleased is the version of a build without one.
const unreleased = "0.1.0-dev"

// buildVersion identifies the build: as set by the linker (-X of Prometheus' common/version), or else
// by Go's own record of the module.
func buildVersion() api.Version {
	v := api.Version{
		Cassia: version.Version, Revision: version.GetRevision(), Branch: version.Branch,
		BuildUser: version.BuildUser, BuildDate: version.BuildDate,
	}
	if v.Cassia == "" {
		v.Cassia = unreleased
		if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") {
			v.Cassia = strings.TrimPrefix(info.Main.Version, "v")
		}
	}
	return v
}

func versionText() string {
	v := buildVersion()
	return fmt.Sprintf("cassia, version %s (revision: %s)\n  query language: Prometheus %s\n  go version:     %s\n  platform:       %s/%s",
		v.Cassia, v.Revision, api.PrometheusVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
