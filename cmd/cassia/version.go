package main

import (
	"fmt"
	"runtime"

	"github.com/prometheus/common/version"

	"github.com/cassia-db/cassia"
	"github.com/cassia-db/cassia/promql/api"
)

// buildVersion returns the version of the build. The linker can set the version (with -X, in Prometheus'
// common/version). Otherwise it is the version in the source.
func buildVersion() api.Version {
	v := api.Version{
		Cassia: version.Version, Revision: version.GetRevision(), Branch: version.Branch,
		BuildUser: version.BuildUser, BuildDate: version.BuildDate,
	}
	if v.Cassia == "" {
		v.Cassia = cassia.Version()
	}
	return v
}

func versionText() string {
	v := buildVersion()
	return fmt.Sprintf(
		"cassia, version %s (revision: %s)\n  query language: Prometheus %s\n"+
			"  go version:     %s\n  platform:       %s/%s",
		v.Cassia, v.Revision, api.PrometheusVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH,
	)
}
