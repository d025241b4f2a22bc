package tenant

import "time"

// Limits are what a tenant may use. 0 sets no limit beyond those that hold for the whole process. A process holds
// them by itself: where several share a store, each lets a tenant have as much.
type Limits struct {
	// SamplesPerSecond is how many samples are taken on average, and SamplesBurst how many at once.
	SamplesPerSecond, SamplesBurst int64
	// ActiveSeries is how many series may be in the head: those with samples that aren't sealed.
	ActiveSeries int64
	// NewSeriesPerHour is how many series may enter the head in an hour, on average; as many at once.
	NewSeriesPerHour int64
	// ExemplarsPerSecond is how many exemplars are taken on average; ten seconds' worth at once.
	ExemplarsPerSecond int64
	// Labels bounds the labels of a series, LabelNameBytes and LabelValueBytes the length of each. 0: as the process has it.
	Labels, LabelNameBytes, LabelValueBytes int64
	// LongLabelValues is what happens to series with a longer label value.
	LongLabelValues LongLabelValues
	// RequestBytes bounds the body of a request that brings samples, before and after it is decompressed.
	RequestBytes int64

	// QueryRange is how far back from its last step a query may look, and from its end a request for labels.
	QueryRange time.Duration
	// QuerySeries bounds the series that a query finds, each selector's counted.
	QuerySeries int64
	// QuerySamples bounds the samples that a query reads, buckets of rollups counted as samples.
	QuerySamples int64
	// QueryBytes bounds the labels and encoded samples that a query reads.
	QueryBytes int64
	// Queries is how many queries run at once, QueriesWaiting how many wait then.
	Queries, QueriesWaiting int64
}

// LongLabelValues is what happens to a series with a label value that is longer than the limit.
type LongLabelValues int64

// longLabelValues are how LongLabelValues are written, from RejectLongLabelValues on.
var longLabelValues = []string{"reject", "truncate"}

// Values of LongLabelValues.
const (
	// LongLabelValuesDefault truncates resource attributes of OTLP, and rejects other series.
	LongLabelValuesDefault LongLabelValues = iota
	// RejectLongLabelValues rejects the series.
	RejectLongLabelValues
	// TruncateLongLabelValues shortens the value, and adds a hash of the whole value.
	TruncateLongLabelValues
)

// burstSeconds is how many seconds' worth of samples, or exemplars, may come at once where no burst is set.
const burstSeconds = 10

// leastBurst is the least of a burst that isn't set: Prometheus sends 2,000 samples in a request.
const leastBurst = 2000

// ofLabelValues are the limits on which it depends as which series samples with a long label value are stored.
func (l Limits) ofLabelValues() [2]int64 {
	return [2]int64{l.LabelValueBytes, int64(l.LongLabelValues)}
}

// burst returns how many samples may come at once.
func (l *Limits) burst() int64 {
	if l.SamplesBurst > 0 {
		return l.SamplesBurst
	}
	return max(leastBurst, l.SamplesPerSecond*burstSeconds)
}

// Table has the limits of all tenants. It doesn't change.
type Table struct {
	defaults Limits
	tenants  map[string]Limits
}

// NewTable returns a table; tenants has those that differ from defaults, whole.
func NewTable(defaults Limits, tenants map[string]Limits) *Table {
	return &Table{defaults: defaults, tenants: tenants}
}

// Of returns the limits of a tenant.
func (t *Table) Of(name string) Limits {
	if own, ok := t.tenants[name]; ok {
		return own
	}
	return t.defaults
}

// IsEmpty reports whether the table has no limits.
func (t *Table) IsEmpty() bool {
	for _, own := range t.tenants {
		if own != (Limits{}) {
			return false
		}
	}
	return t.defaults == Limits{}
}

// key is a limit in a file.
type key struct {
	name string
	unit unit
	most int64 // greatest value; 0: none
	at   func(*Limits) *int64
}

// unit is how a value is written.
type unit uint8

const (
	unitNumber unit = iota
	unitBytes
	unitDuration
	unitWord
)

// Greatest values that can be stored, or kept in memory.
const (
	// MaxLabels is the greatest number of labels that a limit can allow.
	MaxLabels = 1024
	// MaxLabelBytes is the greatest length of a label's name or value that a limit can allow, bytes: they are keys of rows.
	MaxLabelBytes = 16 << 10
	// MinTruncatedBytes is the smallest limit of label values that are truncated, bytes: the hash of a value.
	MinTruncatedBytes = 23
	// greatest keeps ten seconds' worth of anything within 64 bits.
	greatest = 1 << 50
)

// The names of limits, in files, in errors and in metrics.
const (
	KeySamplesPerSecond   = "samples_per_second"
	KeySamplesBurst       = "samples_burst"
	KeyActiveSeries       = "active_series"
	KeyNewSeriesPerHour   = "new_series_per_hour"
	KeyExemplarsPerSecond = "exemplars_per_second"
	KeyLabels             = "labels"
	KeyLabelNameBytes     = "label_name_bytes"
	KeyLabelValueBytes    = "label_value_bytes"
	KeyLongLabelValues    = "long_label_values"
	KeyRequestBytes       = "request_bytes"
	KeyQueryRange         = "query_range"
	KeyQuerySeries        = "query_series"
	KeyQuerySamples       = "query_samples"
	KeyQueryBytes         = "query_bytes"
	KeyQueries            = "queries"
	KeyQueriesWaiting     = "queries_waiting"
)

// keys are all limits, in the order in which they are listed.
var keys = []key{
	{KeySamplesPerSecond, unitNumber, 0, func(l *Limits) *int64 { return &l.SamplesPerSecond }},
	{KeySamplesBurst, unitNumber, 0, func(l *Limits) *int64 { return &l.SamplesBurst }},
	{KeyActiveSeries, unitNumber, 0, func(l *Limits) *int64 { return &l.ActiveSeries }},
	{KeyNewSeriesPerHour, unitNumber, 0, func(l *Limits) *int64 { return &l.NewSeriesPerHour }},
	{KeyExemplarsPerSecond, unitNumber, 0, func(l *Limits) *int64 { return &l.ExemplarsPerSecond }},
	{KeyLabels, unitNumber, MaxLabels, func(l *Limits) *int64 { return &l.Labels }},
	{KeyLabelNameBytes, unitNumber, MaxLabelBytes, func(l *Limits) *int64 { return &l.LabelNameBytes }},
	{KeyLabelValueBytes, unitNumber, MaxLabelBytes, func(l *Limits) *int64 { return &l.LabelValueBytes }},
	{KeyLongLabelValues, unitWord, 0, func(l *Limits) *int64 { return (*int64)(&l.LongLabelValues) }},
	{KeyRequestBytes, unitBytes, 0, func(l *Limits) *int64 { return &l.RequestBytes }},
	{KeyQueryRange, unitDuration, 0, func(l *Limits) *int64 { return (*int64)(&l.QueryRange) }},
	{KeyQuerySeries, unitNumber, 0, func(l *Limits) *int64 { return &l.QuerySeries }},
	{KeyQuerySamples, unitNumber, 0, func(l *Limits) *int64 { return &l.QuerySamples }},
	{KeyQueryBytes, unitBytes, 0, func(l *Limits) *int64 { return &l.QueryBytes }},
	{KeyQueries, unitNumber, 0, func(l *Limits) *int64 { return &l.Queries }},
	{KeyQueriesWaiting, unitNumber, 0, func(l *Limits) *int64 { return &l.QueriesWaiting }},
}

// ByKey returns the limits that are set by their names in files: numbers, bytes, seconds, and words.
func (l Limits) ByKey() map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		switch v := *k.at(&l); {
		case v == 0:
		case k.unit == unitWord:
			out[k.name] = longLabelValues[v-1]
		case k.unit == unitDuration:
			out[k.name] = time.Duration(v).Seconds()
		default:
			out[k.name] = float64(v)
		}
	}
	return out
}
