package bench

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// seriesPerTarget is the number of series of a target: about as many as a node exporter and an application expose.
const seriesPerTarget = 1000

// kind determines how a series' values are generated.
type kind uint8

const (
	kindConstant        kind = iota // never changes
	kindIdle                        // a counter that rarely changes
	kindCounter                     // integers that increase by varying steps and reset occasionally
	kindSeconds                     // a counter of seconds with two decimals
	kindGauge                       // integers around a level, multiples of 4096
	kindRatio                       // floats that use all their bits
	kindOdd                         // NaN with a payload, -0, infinities, denormals
	kindHistogram                   // native: integer buckets
	kindFloatHistogram              // native: float buckets
	kindCustomHistogram             // native: custom buckets
)

// shape is a series of a target: its metric, its own labels (name, value, …), and the kind of its values.
type shape struct {
	metric string
	labels []string
	kind   kind
	mtype  prompb.MetricMetadata_MetricType
}

// family is a metric with a shape per combination of label values.
type family struct {
	metric string
	kind   kind
	mtype  prompb.MetricMetadata_MetricType
	// vary contains the label names with their values.
	vary []variants
}

type variants struct {
	name   string
	values []string
}

const (
	counter = prompb.MetricMetadata_COUNTER
	gauge   = prompb.MetricMetadata_GAUGE
	classic = prompb.MetricMetadata_HISTOGRAM
	summary = prompb.MetricMetadata_SUMMARY
)

func numberedValues(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	return out
}

// targetFamilies returns the families of a target. Their mix is similar to real exporters, in which many series never
// change.
func targetFamilies() []family {
	var (
		cpus     = variants{"cpu", numberedValues("", 16)}
		modes    = variants{"mode", []string{"idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"}}
		disks    = variants{"device", numberedValues("nvme", 6)}
		nics     = variants{"device", append([]string{"lo", "docker0"}, numberedValues("eth", 4)...)}
		mounts   = variants{"mountpoint", []string{"/", "/boot", "/home", "/var", "/var/log", "/tmp", "/srv", "/opt"}}
		handlers = variants{"handler", []string{"/api/v1/query", "/api/v1/query_range", "/api/v1/labels",
			"/login", "/health", "/"}}
		les = variants{"le", []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1",
			"2.5", "5", "10", "+Inf"}}
		codes    = variants{"code", []string{"200", "400", "500"}}
		quantile = variants{"quantile", []string{"0", "0.25", "0.5", "0.75", "1"}}
	)
	out := []family{
		{"node_cpu_seconds_total", kindSeconds, counter, []variants{cpus, modes}},
		{"node_cpu_scaling_frequency_hertz", kindConstant, gauge, []variants{cpus}},
		{"http_request_duration_seconds_bucket", kindCounter, classic, []variants{handlers, les}},
		{"http_request_duration_seconds_count", kindCounter, classic, []variants{handlers}},
		{"http_request_duration_seconds_sum", kindRatio, classic, []variants{handlers}},
		{"http_requests_total", kindCounter, counter, []variants{handlers, codes}},
		{"rpc_durations_seconds", kindRatio, summary, []variants{quantile}},
		{"node_load1", kindRatio, gauge, nil},
		{"node_load5", kindRatio, gauge, nil},
		{"node_boot_time_seconds", kindConstant, gauge, nil},
		{"node_uname_info", kindConstant, gauge, nil},
		{"process_resident_memory_bytes", kindGauge, gauge, nil},
		{"go_goroutines", kindGauge, gauge, nil},
	}
	for _, name := range []string{
		"reads_completed_total", "read_bytes_total", "writes_completed_total", "written_bytes_total",
		"io_time_seconds_total", "read_time_seconds_total", "write_time_seconds_total",
	} {
		out = append(out, family{"node_disk_" + name, kindCounter, counter, []variants{disks}})
	}
	for _, name := range []string{"discards_completed_total", "flush_requests_total", "io_now", "reads_merged_total"} {
		out = append(out, family{"node_disk_" + name, kindIdle, counter, []variants{disks}})
	}
	for _, name := range []string{"receive_bytes_total", "receive_packets_total", "transmit_bytes_total",
		"transmit_packets_total"} {
		out = append(out, family{"node_network_" + name, kindCounter, counter, []variants{nics}})
	}
	for _, name := range []string{
		"receive_errs_total", "receive_drop_total", "receive_fifo_total", "receive_frame_total", "transmit_errs_total",
		"transmit_drop_total", "transmit_fifo_total", "transmit_colls_total", "carrier_changes_total",
	} {
		out = append(out, family{"node_network_" + name, kindIdle, counter, []variants{nics}})
	}
	for _, name := range []string{"mtu_bytes", "speed_bytes", "up", "iface_id", "flags"} {
		out = append(out, family{"node_network_" + name, kindConstant, gauge, []variants{nics}})
	}
	for _, name := range []string{"size_bytes", "files", "readonly", "device_error"} {
		out = append(out, family{"node_filesystem_" + name, kindConstant, gauge, []variants{mounts}})
	}
	for _, name := range []string{"avail_bytes", "free_bytes", "files_free"} {
		out = append(out, family{"node_filesystem_" + name, kindGauge, gauge, []variants{mounts}})
	}
	for i, name := range []string{"MemFree", "MemAvailable", "Cached", "Buffers", "Active", "Inactive", "Dirty", "Slab",
		"MemTotal", "SwapTotal", "HugePages_Total"} {
		k := kindGauge
		if i >= 8 {
			k = kindConstant
		}
		out = append(out, family{"node_memory_" + name + "_bytes", k, gauge, nil})
	}
	return out
}

// targetShapes returns the series of one target. The first w.Histograms series are native histograms, and the next
// w.Odd series have odd values.
func targetShapes(w Workload) []shape {
	out := make([]shape, 0, seriesPerTarget)
	for i := range w.Histograms {
		k := kindHistogram + kind(i%3)
		out = append(out, shape{"rpc_native_seconds",
			[]string{"service", "svc" + strconv.Itoa(i), "kind", strconv.Itoa(int(k - kindHistogram))}, k, classic})
	}
	for i := range w.Odd {
		out = append(out, shape{"bench_odd_value", []string{"slot", strconv.Itoa(i)}, kindOdd, gauge})
	}
	for _, f := range targetFamilies() {
		out = f.appendShapes(out)
	}
	for i := 0; len(out) < seriesPerTarget; i++ {
		// These stand for kernel counters, few of which change.
		k := kindIdle
		if i%8 == 0 {
			k = kindCounter
		}
		out = append(out, shape{fmt.Sprintf("node_vmstat_field%d", i), nil, k, counter})
	}
	return out[:seriesPerTarget]
}

// appendShapes appends a shape for each combination of f's label values.
func (f family) appendShapes(out []shape) []shape {
	combos := [][]string{nil}
	for _, v := range f.vary {
		var next [][]string
		for _, combo := range combos {
			for _, value := range v.values {
				next = append(next, append(slices.Clone(combo), v.name, value))
			}
		}
		combos = next
	}
	for _, combo := range combos {
		out = append(out, shape{f.metric, combo, f.kind, f.mtype})
	}
	return out
}

// labelsOf returns the labels of a target's series in one generation of the target.
func (w Workload) labelsOf(s shape, target, generation int) labels.Labels {
	b := labels.NewScratchBuilder(8 + w.ExtraLabels)
	b.Add(labels.MetricName, s.metric)
	b.Add("job", "bench")
	b.Add("instance", instanceLabel(target, generation))
	for i := 0; i < len(s.labels); i += 2 {
		b.Add(s.labels[i], s.labels[i+1])
	}
	for i := range w.ExtraLabels {
		b.Add(fmt.Sprintf("tag_%02d", i), fmt.Sprintf("value-%d-of-target-%d", i, target%(i+2)))
	}
	b.Sort()
	return b.Labels()
}

// instanceLabel returns the instance label of a target.
func instanceLabel(target, generation int) string {
	return fmt.Sprintf("node-%05d-%d.example.net:9100", target, generation)
}

// writev2Type converts a metric's type. The names are the same, but the numbers differ.
func writev2Type(t prompb.MetricMetadata_MetricType) writev2.Metadata_MetricType {
	switch t {
	case counter:
		return writev2.Metadata_METRIC_TYPE_COUNTER
	case gauge:
		return writev2.Metadata_METRIC_TYPE_GAUGE
	case classic:
		return writev2.Metadata_METRIC_TYPE_HISTOGRAM
	case summary:
		return writev2.Metadata_METRIC_TYPE_SUMMARY
	}
	return writev2.Metadata_METRIC_TYPE_UNSPECIFIED
}
