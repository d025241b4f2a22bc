package remotewrite

// Metadata is what a sender says of a metric. The bytes are valid UTF-8, and the caller's again when the
// call they were passed in returns.
type Metadata struct {
	// Metric is a metric family's name with 1.0, and a series' metric name with 2.0.
	Metric []byte
	// Type is one of unknown, counter, gauge, histogram, gaugehistogram, summary, info, stateset.
	Type string
	// Unit and Help may be empty.
	Unit, Help []byte
}

// metricTypes are the values of MetricType, the same in both protocols.
var metricTypes = [...]string{"unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"}

func metricType(v uint32) string {
	if v < uint32(len(metricTypes)) {
		return metricTypes[v]
	}
	return metricTypes[0]
}
