package tenant

import "time"

// Limits are the limits of a tenant. 0 means no limit other than the limits of the whole process. Each process enforces
// the limits separately: if multiple processes share a store, a tenant can use the full limit in each.
type Limits struct {
	// SamplesPerSecond is the max average rate of samples, and SamplesBurst the max number at once.
	SamplesPerSecond, SamplesBurst int64
	// ActiveSeries is the max number of series in the head: series with unsealed samples.
	ActiveSeries int64
	// NewSeriesPerHour is the max average rate at which series may be added to the head, and the max number added at
	// once.
	NewSeriesPerHour int64
	// ExemplarsPerSecond is the max average rate of exemplars. Ten times this number may be added at once.
	ExemplarsPerSecond int64
	// Labels is the max number of labels of a series. LabelNameBytes and LabelValueBytes are the max lengths of their
	// names and values. If a limit is 0, the limit of the process applies.
	Labels, LabelNameBytes, LabelValueBytes int64
	// LongLabelValues determines how series with a label value longer than LabelValueBytes are handled.
	LongLabelValues LongLabelValues
	// RequestBytes is the max size of the body of a request with samples, before and after decompression.
	RequestBytes int64

	// QueryRange is the max time from the earliest sample that a query may read to its last step, and from the start to
	// the end of a request for labels.
	QueryRange time.Duration
	// QuerySeries is the max number of series that a query finds, counted per selector.
	QuerySeries int64
	// QuerySamples is the max number of samples that a query reads. Buckets of rollups count as samples.
	QuerySamples int64
	// QueryBytes is the max number of bytes of labels and encoded samples that a query reads.
	QueryBytes int64
	// Queries is the max number of concurrent queries, and QueriesWaiting the max number of queries that wait.
	Queries, QueriesWaiting int64
}

// LongLabelValues determines how a series with a label value over the limit is handled.
type LongLabelValues int64

// longLabelValues are the names of the constants in the limits file, starting with RejectLongLabelValues.
var longLabelValues = []string{"reject", "truncate"}

// Values of LongLabelValues.
const (
	// The default truncates resource attributes of OTLP, and rejects other series.
	_ LongLabelValues = iota
	// RejectLongLabelValues rejects the series.
	RejectLongLabelValues
	// TruncateLongLabelValues shortens the value, and adds a hash of the whole value.
	TruncateLongLabelValues
)

// burstSeconds is the default burst of samples and of exemplars, in seconds at the limit's rate.
const burstSeconds = 10

// minBurst is the min default burst of samples. Prometheus sends up to 2,000 samples per request.
const minBurst = 2000

// labelValueLimits returns the limits that determine the series of a sample with a long label value.
func (l Limits) labelValueLimits() [2]int64 {
	return [2]int64{l.LabelValueBytes, int64(l.LongLabelValues)}
}

// burst returns the max number of samples that are accepted at once.
func (l *Limits) burst() int64 {
	if l.SamplesBurst > 0 {
		return l.SamplesBurst
	}
	return max(minBurst, l.SamplesPerSecond*burstSeconds)
}

// Table has the limits of all tenants. It is immutable.
type Table struct {
	defaults Limits
	tenants  map[string]Limits
}

// NewTable returns a table. tenants contains the complete limits of the tenants that don't use defaults.
func NewTable(defaults Limits, tenants map[string]Limits) *Table {
	return &Table{defaults: defaults, tenants: tenants}
}

// LimitsOf returns the limits of a tenant.
func (t *Table) LimitsOf(name string) Limits {
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

// key describes a limit in the limits file.
type key struct {
	name string
	unit unit
	most int64 // max value; 0: no max
	at   func(*Limits) *int64
}

// unit is the syntax of a limit's value.
type unit uint8

const (
	unitNumber unit = iota
	unitBytes
	unitDuration
	unitWord
)

// The max values of limits.
const (
	// MaxLabels is the max number of labels that a limit can allow.
	MaxLabels = 1024
	// maxLabelBytes is the max length of a label's name or value that a limit can allow, in bytes. Labels are part of
	// the keys of rows, which have a max size.
	maxLabelBytes = 16 << 10
	// MinTruncatedBytes is the min limit for label values that are truncated, in bytes: the length of a value's hash.
	MinTruncatedBytes = 23
	// maxLimit is the max value of all other limits. Ten times this value doesn't overflow 64 bits.
	maxLimit = 1 << 50
)

// The names of limits in files, errors and metrics.
const (
	keySamplesPerSecond   = "samples_per_second"
	keySamplesBurst       = "samples_burst"
	KeyActiveSeries       = "active_series"
	keyNewSeriesPerHour   = "new_series_per_hour"
	keyExemplarsPerSecond = "exemplars_per_second"
	KeyLabels             = "labels"
	KeyLabelNameBytes     = "label_name_bytes"
	KeyLabelValueBytes    = "label_value_bytes"
	keyLongLabelValues    = "long_label_values"
	keyRequestBytes       = "request_bytes"
	KeyQueryRange         = "query_range"
	KeyQuerySeries        = "query_series"
	KeyQuerySamples       = "query_samples"
	keyQueryBytes         = "query_bytes"
	KeyQueries            = "queries"
	KeyQueriesWaiting     = "queries_waiting"
)

// keys are all limits in the order in which they are listed.
var keys = []key{
	{keySamplesPerSecond, unitNumber, 0, func(l *Limits) *int64 { return &l.SamplesPerSecond }},
	{keySamplesBurst, unitNumber, 0, func(l *Limits) *int64 { return &l.SamplesBurst }},
	{KeyActiveSeries, unitNumber, 0, func(l *Limits) *int64 { return &l.ActiveSeries }},
	{keyNewSeriesPerHour, unitNumber, 0, func(l *Limits) *int64 { return &l.NewSeriesPerHour }},
	{keyExemplarsPerSecond, unitNumber, 0, func(l *Limits) *int64 { return &l.ExemplarsPerSecond }},
	{KeyLabels, unitNumber, MaxLabels, func(l *Limits) *int64 { return &l.Labels }},
	{KeyLabelNameBytes, unitNumber, maxLabelBytes, func(l *Limits) *int64 { return &l.LabelNameBytes }},
	{KeyLabelValueBytes, unitNumber, maxLabelBytes, func(l *Limits) *int64 { return &l.LabelValueBytes }},
	{keyLongLabelValues, unitWord, 0, func(l *Limits) *int64 { return (*int64)(&l.LongLabelValues) }},
	{keyRequestBytes, unitBytes, 0, func(l *Limits) *int64 { return &l.RequestBytes }},
	{KeyQueryRange, unitDuration, 0, func(l *Limits) *int64 { return (*int64)(&l.QueryRange) }},
	{KeyQuerySeries, unitNumber, 0, func(l *Limits) *int64 { return &l.QuerySeries }},
	{KeyQuerySamples, unitNumber, 0, func(l *Limits) *int64 { return &l.QuerySamples }},
	{keyQueryBytes, unitBytes, 0, func(l *Limits) *int64 { return &l.QueryBytes }},
	{KeyQueries, unitNumber, 0, func(l *Limits) *int64 { return &l.Queries }},
	{KeyQueriesWaiting, unitNumber, 0, func(l *Limits) *int64 { return &l.QueriesWaiting }},
}

// ByKey returns the limits that are set, by their names in the file. The values are counts,
// sizes in bytes, durations in seconds, or strings.
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
