package remotewrite

import "bytes"

// Metadata is a sender's metadata of a metric. Its bytes are valid UTF-8 and must not be used after Options.Metadata
// has returned.
type Metadata struct {
	// Metric is the name of the metric family. In 2.0 it is derived from the name of the series; the name of a counter
	// keeps its _total.
	Metric []byte
	// Type is one of unknown, counter, gauge, histogram, gaugehistogram, summary, info, stateset.
	Type string
	// Unit and Help may be empty.
	Unit, Help []byte
}

// metricTypes are the values of MetricType, the same in both protocols.
var metricTypes = [...]string{
	"unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset",
}

// familyOf returns the metric family of a 2.0 series from the name of the series, because the store keeps metadata by
// family.
func familyOf(name []byte, typ uint32) []byte {
	var endings []string
	switch metricType(typ) {
	case "histogram", "gaugehistogram":
		endings = []string{"_bucket", "_sum", "_count", "_gsum", "_gcount"}
	case "summary":
		endings = []string{"_sum", "_count"}
	}
	for _, ending := range endings {
		if family, ok := bytes.CutSuffix(name, []byte(ending)); ok && len(family) > 0 {
			return family
		}
	}
	return name
}

func metricType(v uint32) string {
	if v < uint32(len(metricTypes)) {
		return metricTypes[v]
	}
	return metricTypes[0]
}
