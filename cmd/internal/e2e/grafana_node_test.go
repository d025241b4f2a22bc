package e2e

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// machine simulates a node exporter: it consists of series whose values are functions of the time in seconds.
type machine []struct {
	// series contains the metric, followed by label names and values.
	series []string
	value  func(seconds float64) float64
}

// newMachine returns a machine with two CPUs, a disk, a network device and two file systems, booted at the given time.
func newMachine(boot float64) (m machine) {
	add := func(value func(float64) float64, series ...string) {
		m = append(m, struct {
			series []string
			value  func(float64) float64
		}{append(series, "job", "node", "instance", "machine:9100"), value})
	}
	counter := func(perSecond float64) func(float64) float64 {
		return func(s float64) float64 { return math.Floor((s - boot) * perSecond) }
	}
	// wave returns a function that oscillates between low and high with a period of a day.
	wave := func(low, high float64) func(float64) float64 {
		return func(s float64) float64 { return math.Round(low + (high-low)*(1+math.Sin(s/86400*2*math.Pi))/2) }
	}
	constant := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	for _, cpu := range []string{"0", "1"} {
		for mode, share := range map[string]float64{"idle": 0.7, "user": 0.2, "system": 0.08, "iowait": 0.02} {
			add(counter(share), "node_cpu_seconds_total", "cpu", cpu, "mode", mode)
		}
	}
	for _, load := range []string{"node_load1", "node_load5", "node_load15"} {
		add(wave(0, 4), load)
	}
	for use, high := range map[string]float64{
		"MemTotal": 16e9, "MemFree": 2e9, "MemAvailable": 8e9, "Cached": 5e9, "Buffers": 1e9, "SwapTotal": 4e9,
		"SwapFree": 3e9,
	} {
		value := wave(high/2, high)
		if strings.HasSuffix(use, "Total") {
			value = constant(high)
		}
		add(value, "node_memory_"+use+"_bytes")
	}
	for name, perSecond := range map[string]float64{
		"read_bytes": 1e6, "written_bytes": 2e6, "io_time_seconds": 0.1, "reads_completed": 20, "writes_completed": 40,
		"read_time_seconds": 0.05, "write_time_seconds": 0.1,
	} {
		add(counter(perSecond), "node_disk_"+name+"_total", "device", "sda")
	}
	for name, perSecond := range map[string]float64{"bytes": 1e5, "errs": 0.001, "drop": 0.01} {
		add(counter(perSecond), "node_network_receive_"+name+"_total", "device", "eth0")
		add(counter(perSecond/2), "node_network_transmit_"+name+"_total", "device", "eth0")
	}
	for place, size := range map[string]float64{"/": 50e9, "/var": 200e9} {
		of := []string{"device", "/dev/sda1", "fstype", "ext4", "mountpoint", place}
		add(constant(size), append([]string{"node_filesystem_size_bytes"}, of...)...)
		add(wave(size/4, size/2), append([]string{"node_filesystem_avail_bytes"}, of...)...)
		add(constant(size/1e4), append([]string{"node_filesystem_files"}, of...)...)
		add(wave(size/3e4, size/2e4), append([]string{"node_filesystem_files_free"}, of...)...)
	}
	add(constant(boot), "node_boot_time_seconds")
	add(constant(1), "node_uname_info", "nodename", "machine", "release", "6.12", "sysname", "Linux")
	return m
}

// write sends the samples from a time (exclusive) to another time, at multiples of every.
func (m machine) write(t *testing.T, r running, from, to time.Time, every time.Duration) {
	t.Helper()
	const perRequest = 1000
	for at := from.Truncate(every).Add(every); !at.After(to); at = at.Add(perRequest * every) {
		request := &prompb.WriteRequest{}
		for _, s := range m {
			one := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: s.series[0]}}}
			for i := 1; i < len(s.series); i += 2 {
				one.Labels = append(one.Labels, prompb.Label{Name: s.series[i], Value: s.series[i+1]})
			}
			for i := range perRequest {
				if when := at.Add(time.Duration(i) * every); !when.After(to) {
					one.Samples = append(one.Samples, prompb.Sample{
						Timestamp: when.UnixMilli(), Value: s.value(float64(when.Unix())),
					})
				}
			}
			request.Timeseries = append(request.Timeseries, one)
		}
		body, err := request.Marshal()
		require.NoError(t, err)
		code, text := r.Post(t, "/api/v1/write", snappy.Encode(nil, body))
		require.Equal(t, http.StatusNoContent, code, text)
	}
}

// TestTwoYearsOnADashboard checks the resolution and the number of points of the dashboard's queries over hours, days,
// months and two years of a machine's samples.
func TestTwoYearsOnADashboard(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("two years of samples")
	}
	r := startServe(
		t, "--storage.path="+t.TempDir(), "--retention.raw=0", "--storage.slot=12h", "--storage.partitions=1",
	)
	const day = 24 * time.Hour
	now := time.Now().Truncate(time.Second)
	recent := now.Add(-2 * time.Hour)
	m := newMachine(float64(now.Add(-731 * day).Unix()))
	m.write(t, r, now.Add(-731*day), recent, 15*time.Minute)
	m.write(t, r, recent, now, 15*time.Second)
	code, text := r.Post(t, "/-/seal", nil)
	require.Equal(t, http.StatusOK, code, text)

	d := readDashboards(t)["cassia-node-years"]
	g := newGrafana(t, r.URL)
	for _, c := range []struct {
		span time.Duration
		// whole is set if no point may be missing. resolution is the expected resolution of panels that don't set a min
		// interval.
		whole      bool
		resolution string
	}{
		{time.Hour, false, "raw"}, {6 * time.Hour, false, "raw"}, {14 * day, false, "raw"}, {60 * day, true, "1h"},
		{730 * day, true, "1h"},
	} {
		t.Run(fmt.Sprint(c.span), func(t *testing.T) {
			g.from, g.to = now.Add(-c.span), now
			askDashboard(t, g, d, func(p dashboardPanel, target dashboardTarget, a grafanaAnswer) {
				if target.Instant || p.Interval != "" {
					return
				}
				what := fmt.Sprintf("%s: %s", p.Title, target.Expr)
				require.True(t, strings.HasPrefix(a.resolution, c.resolution),
					"%s: answered from %s", what, a.resolution)
				if c.whole {
					require.GreaterOrEqual(t, a.samples, a.series*int(c.span/a.step), what)
				}
			})
		})
	}
}
