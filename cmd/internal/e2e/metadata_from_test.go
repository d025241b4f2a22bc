package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/cassia-db/cassia/cmd/internal/cassiatest"
	"github.com/cassia-db/cassia/cmd/internal/promrig"
	"github.com/cassia-db/cassia/storage/tenant"
)

// TestMetadataFrom runs a Prometheus that requires a password and sends remote write 2.0, whose requests contain no
// metric types. Cassia must fetch the metadata from this Prometheus, store it for the tenant to which Prometheus
// writes, and return it.
func TestMetadataFrom(t *testing.T) {
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("s3cret"), bcrypt.MinCost)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"web.yml":   "basic_auth_users: {ops: '" + string(hash) + "'}\n",
		"login.yml": "basic_auth: {username: ops, password_file: password}\n",
		"password":  "s3cret\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	self := cassiatest.FreeAddress(t)
	// The source isn't running yet. This must not prevent the start.
	cassia := startServe(t, "--storage.path="+t.TempDir(), "--metadata.from=team-a=http://"+self,
		"--metadata.http.config.file="+filepath.Join(dir, "login.yml"))
	const sender = "remote_write:\n  - url: %URL%/api/v1/write\n    protobuf_message: io.prometheus.write.v2.Request\n    headers: {" + tenant.Header + ": team-a}\n" +
		"scrape_configs:\n  - job_name: itself\n    scrape_interval: 1s\n    basic_auth: {username: ops, password: " +
		"s3cret}\n    static_configs: [{targets: ['%SELF%']}]\n"
	binary := cassiatest.Binary(t, "CASSIA_TEST_PROMETHEUS", "prometheus")
	program, err := promrig.Prometheus(
		binary, dir, self, strings.NewReplacer("%URL%", cassia.URL, "%SELF%", self).Replace(sender),
		"--web.config.file="+filepath.Join(dir, "web.yml"),
	)
	require.NoError(t, err)
	program.Address = "ops:s3cret@" + self // the user info is part of URL()
	prometheus := start(t.Context(), t, program)

	type metadata map[string][]struct{ Type, Help, Unit string }
	for _, metric := range []string{
		"go_goroutines", "prometheus_http_requests_total", "prometheus_http_request_duration_seconds",
	} {
		// Counters of requests are exposed from the first request on, so the first scrape may not contain them.
		var want metadata
		for began := time.Now(); len(want[metric]) == 0; time.Sleep(100 * time.Millisecond) {
			require.Less(t, time.Since(began), cassiatest.Patience, "Prometheus scrapes %s of itself", metric)
			want = nil
			getJSON(t.Context(), t, prometheus.URL()+"/api/v1/metadata", &want)
		}
		for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			require.Less(t, time.Since(began), cassiatest.Patience, metric)
			var got metadata
			getJSON(t.Context(), t, cassia.URL+"/t/team-a/api/v1/metadata?metric="+metric, &got)
			if len(got[metric]) > 0 {
				require.Equal(t, want[metric], got[metric])
				break
			}
		}
	}
	var others metadata
	getJSON(t.Context(), t, cassia.URL+"/api/v1/metadata", &others)
	require.Empty(t, others, "only the tenant that was named is told of")
	code, text := cassia.Get(t, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `cassia_metadata_requests_total{result="ok",tenant="team-a",url="http://`+self+`"}`)
	require.NoError(t, cassia.stop())
	require.NotContains(t, cassiatest.ReadText(t, cassia.log), "s3cret")
}
