package kairosdb

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/adapter/importer"
)

// errCollision means that the mapping merges multiple series into one.
var errCollision = errors.New("kairosdb: the mapping merges multiple series into one")

// errMapping means that the mapping gives a series no valid labels.
var errMapping = errors.New("kairosdb: the mapping is invalid for this data")

// maxListed bounds the items listed by an error.
const maxListed = 20

// plan lists the data to import.
type plan struct {
	// metrics are the selected metrics by name.
	metrics []*metricPlan
	// slices are the ends of the slices that may have points, sorted, in milliseconds.
	slices []int64
	// others counts rows whose type isn't a number, by type. dropped counts metrics that the mapping drops.
	others  map[string]int
	dropped int
	summary importer.Plan
	// err is the error of the mapping.
	err error
}

// metricPlan holds the series and rows of a selected metric.
type metricPlan struct {
	name    string
	mapping *metricMapping
	// times are the start times of the metric's rows, sorted, in milliseconds.
	times  []int64
	series int
	// others is the number of rows whose values aren't numeric.
	others int
	tags   map[string]bool
}

// hasRows reports whether there are rows that may have points in [minMS, maxMS].
func (m *metricPlan) hasRows(minMS, maxMS, widthMS int64) bool {
	i, _ := slices.BinarySearch(m.times, minMS-widthMS+1)
	return i < len(m.times) && m.times[i] <= maxMS
}

// Metric describes how a metric is mapped.
type Metric struct {
	// From is the metric's name in KairosDB, To its name in Cassia. Series is the number of its series.
	From, To string
	Series   int
	// Tags are the metric's tags with their labels, sorted. The label of a dropped tag is "".
	Tags []Tag
}

// Tag is a tag and its label.
type Tag struct{ From, To string }

// Plan implements importer.Source. It reads all indexes and no points. If the mapping doesn't fit, the error is an
// errCollision or an errMapping, and Mappings can still be called.
func (s *Source) Plan(ctx context.Context) (importer.Plan, error) {
	s.plan = nil
	if err := s.ensurePlan(ctx); s.plan == nil {
		return importer.Plan{}, err
	}
	return s.plan.summary, s.plan.err
}

// ensurePlan computes the plan unless it exists.
func (s *Source) ensurePlan(ctx context.Context) error {
	if s.plan != nil {
		return s.plan.err
	}
	names, err := s.o.Keyspace.Metrics(ctx)
	if err != nil {
		return err
	}
	p := &plan{others: map[string]int{}}
	for _, name := range names {
		if mapping, ok := s.o.Mapping.mapMetric(name); ok {
			p.metrics = append(p.metrics, &metricPlan{name: name, mapping: mapping, tags: map[string]bool{}})
		} else {
			p.dropped++
		}
	}
	// Only metrics with the same new name can collide, so the series of one new name at a time are held in memory.
	byName := slices.Clone(p.metrics)
	slices.SortStableFunc(byName, func(a, b *metricPlan) int { return cmp.Compare(a.mapping.to, b.mapping.to) })
	var mistakes mappingErrors
	for len(byName) > 0 {
		n := 1
		for n < len(byName) && byName[n].mapping.to == byName[0].mapping.to {
			n++
		}
		if err := s.checkGroup(ctx, p, byName[:n], &mistakes); err != nil {
			return err
		}
		byName = byName[n:]
	}
	p.metrics = slices.DeleteFunc(p.metrics, func(m *metricPlan) bool { return m.series+m.others == 0 })
	p.computeSlices(s.o.WidthMS, s.o.Select.MinMS, s.o.Select.MaxMS)
	p.summarize()
	p.err = mistakes.err()
	s.plan = p
	return p.err
}

// mappingErrors collects the errors that the mapping makes on this data.
type mappingErrors struct {
	collisions, others []string
	more               int
}

func (m *mappingErrors) add(to *[]string, format string, args ...any) {
	if len(*to) >= maxListed {
		m.more++
		return
	}
	*to = append(*to, fmt.Sprintf(format, args...))
}

func (m *mappingErrors) err() error {
	var errs []error
	for _, list := range []struct {
		is    error
		texts []string
	}{{errMapping, m.others}, {errCollision, m.collisions}} {
		if len(list.texts) > 0 {
			errs = append(errs, fmt.Errorf("%w: %s", list.is, strings.Join(list.texts, "; ")))
		}
	}
	if m.more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", m.more))
	}
	return errors.Join(errs...)
}

// seriesID identifies a series: the first 16 bytes of a SHA-256.
type seriesID [16]byte

func idOf(texts ...string) seriesID {
	var b []byte
	for _, t := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(t))), t...)
	}
	sum := sha256.Sum256(b)
	return seriesID(sum[:16])
}

func idOfLabels(ls labels.Labels) seriesID {
	var texts []string
	ls.Range(func(l labels.Label) { texts = append(texts, l.Name, l.Value) })
	return idOf(texts...)
}

func idOfSeries(metric string, tags map[string]string) seriesID {
	texts := []string{metric}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		texts = append(texts, name, tags[name])
	}
	return idOf(texts...)
}

// collision is a series whose labels equal those of another series.
type collision struct {
	labels labels.Labels
	series string
	other  seriesID
}

// checkGroup checks all series of the metrics that are mapped to one name.
func (s *Source) checkGroup(ctx context.Context, p *plan, group []*metricPlan, wrong *mappingErrors) error {
	// seen maps the id of the resulting labels to the id of the series in KairosDB.
	seen := map[seriesID]seriesID{}
	var collisions []collision
	for _, m := range group {
		known := map[seriesID]bool{}
		err := s.eachRow(ctx, m, func(r *Row) {
			if n := len(m.times); n == 0 || m.times[n-1] != r.TimeMS {
				m.times = append(m.times, r.TimeMS)
			}
			series := idOfSeries(m.name, r.Tags)
			ls, err := m.mapping.labels(r.Tags)
			switch {
			case err != nil && !known[series]:
				known[series] = true
				wrong.add(&wrong.others, "%s: %v", seriesText(m.name, r.Tags), err)
				return
			case err != nil || !s.o.Select.Wants(ls):
				return
			case !r.IsNumber:
				p.others[r.Type]++
				m.others++
				return
			}
			for tag := range r.Tags {
				m.tags[tag] = true
			}
			ls = s.o.Select.Labels(ls)
			to := idOfLabels(ls)
			other, ok := seen[to]
			switch {
			case !ok:
				seen[to] = series
				m.series++
			case other != series && !known[series]:
				known[series] = true
				if len(collisions) < maxListed {
					collisions = append(collisions, collision{ls, seriesText(m.name, r.Tags), other})
				} else {
					wrong.more++
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return s.reportCollisions(ctx, group, collisions, wrong)
}

// reportCollisions reports both series of each collision. Only the id of the earlier series is known, so the rows are
// read again to find it.
func (s *Source) reportCollisions(
	ctx context.Context, group []*metricPlan, collisions []collision, wrong *mappingErrors,
) error {
	if len(collisions) == 0 {
		return nil
	}
	names := map[seriesID]string{}
	for _, c := range collisions {
		names[c.other] = ""
	}
	for _, m := range group {
		err := s.eachRow(ctx, m, func(r *Row) {
			series := idOfSeries(m.name, r.Tags)
			if name, ok := names[series]; ok && name == "" {
				names[series] = seriesText(m.name, r.Tags)
			}
		})
		if err != nil {
			return err
		}
	}
	for _, c := range collisions {
		wrong.add(&wrong.collisions, "%s and %s would both become %s", names[c.other], c.series, c.labels)
	}
	return nil
}

// eachRow calls do for each row of a metric that may have selected points, sorted by time.
func (s *Source) eachRow(ctx context.Context, m *metricPlan, do func(*Row)) error {
	for rows, err := range s.o.Keyspace.Rows(ctx, m.name, s.o.Select.MinMS, s.o.Select.MaxMS) {
		var damaged *DamageError
		if err != nil && !errors.As(err, &damaged) { // Batches counts the damage.
			return err
		}
		for i := range rows {
			do(&rows[i])
		}
	}
	return nil
}

// computeSlices computes the slices that contain rows of the given width.
func (p *plan) computeSlices(widthMS, minMS, maxMS int64) {
	ends := map[int64]bool{}
	for _, m := range p.metrics {
		for _, t := range m.times {
			for end := roundUp(max(t, minMS), sliceMS); end-sliceMS < min(t+widthMS-1, maxMS); end += sliceMS {
				ends[end] = true
			}
		}
	}
	p.slices = slices.Sorted(maps.Keys(ends))
	p.summary.MinMS, p.summary.MaxMS = 1, 0
	for _, m := range p.metrics {
		first, last := max(m.times[0], minMS), min(m.times[len(m.times)-1]+widthMS-1, maxMS)
		if p.summary.MinMS > p.summary.MaxMS {
			p.summary.MinMS, p.summary.MaxMS = first, last
		}
		p.summary.MinMS, p.summary.MaxMS = min(p.summary.MinMS, first), max(p.summary.MaxMS, last)
	}
}

// summarize sets the summary, which is shown before the import starts.
func (p *plan) summarize() {
	words := fmt.Sprintf("%d KairosDB metrics", len(p.metrics))
	if p.dropped > 0 {
		words += fmt.Sprintf(" (%d dropped by the mapping)", p.dropped)
	}
	for _, typ := range slices.Sorted(maps.Keys(p.others)) {
		words += fmt.Sprintf(", %d rows of type %s skipped", p.others[typ], typ)
	}
	p.summary.Words = words
	for _, m := range p.metrics {
		p.summary.Series += int64(m.series)
	}
}

// Mappings returns the mapping of each imported metric, by name. Plan must have been called.
func (s *Source) Mappings() []Metric {
	if s.plan == nil {
		return nil
	}
	var all []Metric
	for _, m := range s.plan.metrics {
		told := Metric{From: m.name, To: m.mapping.to, Series: m.series}
		for _, tag := range slices.Sorted(maps.Keys(m.tags)) {
			to, _ := s.o.Mapping.mapLabel(tag)
			told.Tags = append(told.Tags, Tag{tag, to})
		}
		all = append(all, told)
	}
	return all
}
