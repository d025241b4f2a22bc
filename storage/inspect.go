package storage

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
)

// ErrInspect says that what was asked of Inspect can't be shown.
var ErrInspect = errors.New("storage: can't show that")

// Overview tells in words what is stored: settings, tenants, their windows, and slots not yet sealed.
func (s *Store) Overview(ctx context.Context, out func(line string)) error {
	say := func(format string, args ...any) { out(fmt.Sprintf(format, args...)) }
	list := s.period.All()
	say("created %s, %s", instant(s.created.UnixMilli()), list[0])
	for _, p := range list[1:] {
		say("after %s, %s", instant(p.FromMS), p)
	}
	staged := map[int64]int{}
	for p := range s.period.Partitions() {
		work, err := s.Waiting(ctx, p)
		if err != nil {
			return err
		}
		for _, w := range work {
			if empty, err := s.empty(ctx, engine.Stage, format.StagePartition(w.Slot, p)); err != nil {
				return err
			} else if !empty {
				staged[w.Slot]++
			}
		}
	}
	slots := make([]int64, 0, len(staged))
	for slot := range staged {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	for _, slot := range slots {
		say("slot %d, from %s to %s: staged in %d partitions", slot, instant(s.period.SlotStart(slot)), instant(s.period.SlotEnd(slot)), staged[slot])
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		windows, err := s.windowsOf(ctx, tenant, -allWindows, allWindows)
		if err != nil {
			return err
		}
		say("tenant %q, %d windows", tenant, len(windows))
		for _, w := range windows {
			marks := 0
			for _, err := range s.eng.Scan(ctx, engine.Range{Table: engine.Sealed, Partition: format.SealedPartition(w, tenant), KeysOnly: true}) {
				if err != nil {
					return err
				}
				marks++
			}
			if marks > 0 {
				say("  %s window %d, until %s: %d seals", format.ResolutionOf(w), w, instant(s.period.WindowEnd(w)), marks)
			}
		}
	}
	return nil
}

// Inspect tells in words what stands in the rows of one partition of a table. fields gives the whole
// partition key by the names of its fields, and may give the first fields of the clustering key; integers
// are decimal, ids hexadecimal.
func (s *Store) Inspect(ctx context.Context, table string, fields map[string]string, out func(line string)) error {
	i := slices.IndexFunc(engine.Tables, func(t *engine.Table) bool { return t.Name == table })
	if i < 0 {
		names := make([]string, len(engine.Tables))
		for i, t := range engine.Tables {
			names[i] = t.Name
		}
		return fmt.Errorf("%w: there is no table %q; there are %s", ErrInspect, table, strings.Join(names, ", "))
	}
	t := engine.Tables[i]
	partition, err := parseKey(t, t.Partition, fields)
	if err != nil {
		return err
	}
	if len(partition) < len(t.Partition) {
		return fmt.Errorf("%w: rows of %s are found by %s; %s=… is missing", ErrInspect, t, fieldNames(t.Partition), t.Partition[len(partition)].Name)
	}
	from, err := parseKey(t, t.Clustering, fields)
	if err != nil {
		return err
	}
	for name := range fields {
		known := func(f engine.Field) bool { return f.Name == name }
		if !slices.ContainsFunc(t.Partition, known) && !slices.ContainsFunc(t.Clustering, known) {
			return fmt.Errorf("%w: %s has no field %q; it has %s and %s", ErrInspect, t, name, fieldNames(t.Partition), fieldNames(t.Clustering))
		}
	}
	for row, err := range s.eng.Scan(ctx, engine.Range{Table: t, Partition: partition, From: from, To: from}) {
		if err != nil {
			return err
		}
		words, err := s.words(t, partition, row)
		if err != nil {
			words = "CORRUPT: " + err.Error()
		}
		out(keyText(t.Clustering, row.Clustering) + ": " + words)
	}
	return nil
}

// parseKey makes a key of the fields that are given, up to the first that isn't.
func parseKey(t *engine.Table, fields []engine.Field, given map[string]string) (engine.Key, error) {
	var key engine.Key
	for _, f := range fields {
		text, ok := given[f.Name]
		if !ok {
			break
		}
		v := engine.Text(text)
		switch f.Kind {
		case engine.KindInt:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: %s=%q of %s is no integer", ErrInspect, f.Name, text, t)
			}
			v = engine.Int(n)
		case engine.KindID:
			raw, err := hex.DecodeString(text)
			if err != nil || len(raw) != engine.IDLen {
				return nil, fmt.Errorf("%w: %s=%q of %s isn't %d bytes in hexadecimal", ErrInspect, f.Name, text, t, engine.IDLen)
			}
			v = engine.Text(string(raw))
		}
		key = append(key, v)
	}
	return key, nil
}

func fieldNames(fields []engine.Field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

func keyText(fields []engine.Field, key engine.Key) string {
	var parts []string
	for i, v := range key {
		switch fields[i].Kind {
		case engine.KindInt:
			parts = append(parts, fmt.Sprintf("%s=%d", fields[i].Name, v.Int))
		case engine.KindID:
			parts = append(parts, fmt.Sprintf("%s=%x", fields[i].Name, v.Text))
		default:
			parts = append(parts, fmt.Sprintf("%s=%q", fields[i].Name, v.Text))
		}
	}
	return strings.Join(parts, " ")
}

// words tells what a row's value says.
func (s *Store) words(t *engine.Table, partition engine.Key, row engine.Row) (string, error) {
	switch t {
	case engine.Stage:
		return blobWords(row.Value)
	case engine.Low:
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return "", errors.New("not a number")
		}
		return strconv.FormatInt(v, 10), nil
	case engine.Raw, engine.R5m, engine.R1h:
		return rawWords(partition, row)
	case engine.Metadata:
		m, err := parseMetadata(row.Value)
		return fmt.Sprintf("type %s, unit %q, help %q", m.Type, m.Unit, m.Help), err
	case engine.Store:
		return string(row.Value), nil
	case engine.Windows:
		return parseListing(row.Value).words(), nil
	case engine.Shards:
		n, err := format.ParseShards(row.Value)
		return fmt.Sprintf("%d shards", n), err
	case engine.Deletes:
		return deletionWords(row.Clustering[0].Text, row.Value)
	case engine.Defined:
		if row.Clustering[1].Int < 0 {
			run, err := parseWorkedOff(row)
			return fmt.Sprintf("seq %d to %d are sealed", run.First, run.Last), err
		}
		return blobWords(row.Value)
	case engine.Tails:
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return "", errors.New("not a number")
		}
		return fmt.Sprintf("seq %d", v), nil
	case engine.Held:
		return heldWords(row.Value)
	case engine.Lease, engine.Processes, engine.Chosen:
		return string(row.Value), nil
	}
	return "-", nil
}

func rawWords(partition engine.Key, row engine.Row) (string, error) {
	if row.Clustering[0].Int == format.KindLabels {
		var builder labels.ScratchBuilder
		ls, err := format.ParseLabels(row.Value, partition[3].Text, &builder)
		return ls.String(), err
	}
	if row.Clustering[0].Int == format.KindExemplars {
		return exemplarWords(row.Value)
	}
	var samples chunk.Samples
	raw, err := format.DecodeRawChunk(row.Value, nil, &samples)
	if err != nil {
		return "", err
	}
	if samples.Len() == 0 {
		return fmt.Sprintf("%d bytes, all of it was deleted", len(row.Value)), nil
	}
	minT, maxT := format.TimeBounds(&samples)
	words := fmt.Sprintf("%d bytes, %d floats, %d histograms, from %s to %s", len(row.Value), len(samples.T), len(samples.H), instant(minT), instant(maxT))
	if n := raw.Exempt.Count(); n > 0 {
		words += fmt.Sprintf(", exempt from %d deletes", n)
	}
	if n := len(samples.V); n > 0 {
		words += fmt.Sprintf(", first %v, last %v", samples.V[0], samples.V[n-1])
	}
	return words, nil
}

// blobWords tells what a blob holds.
func blobWords(b []byte) (string, error) {
	var r format.BlobReader
	if err := r.Open(b); err != nil {
		return "", err
	}
	c := &blobCounts{minT: math.MaxInt64, maxT: math.MinInt64}
	if err := r.Walk(c); err != nil {
		return "", err
	}
	words := fmt.Sprintf("%d bytes, epoch %d, %d series defined, %d floats, %d histograms", len(b), r.Epoch, c.series, c.floats, c.histograms)
	if c.exemplars > 0 {
		words += fmt.Sprintf(", %d exemplars", c.exemplars)
	}
	if c.floats+c.histograms+c.exemplars > 0 {
		words += fmt.Sprintf(", from %s to %s", instant(c.minT), instant(c.maxT))
	}
	return words, nil
}

// blobCounts counts the records of a blob.
type blobCounts struct {
	series, floats, histograms, exemplars int
	minT, maxT                            int64
}

func (c *blobCounts) Define(uint32, string, labels.Labels) error { c.series++; return nil }

func (c *blobCounts) Float(_ uint32, t, _ int64, _ uint64) error {
	c.floats++
	c.minT, c.maxT = min(c.minT, t), max(c.maxT, t)
	return nil
}

func (c *blobCounts) Histogram(_ uint32, t int64, _ []byte) error {
	c.histograms++
	c.minT, c.maxT = min(c.minT, t), max(c.maxT, t)
	return nil
}

func (c *blobCounts) Exemplar(_ uint32, t int64, _ []byte) error {
	c.exemplars++
	c.minT, c.maxT = min(c.minT, t), max(c.maxT, t)
	return nil
}

// exemplarWords tells what a row of exemplars holds.
func exemplarWords(b []byte) (string, error) {
	list, _, err := format.DecodeRawExemplars(b, nil)
	words := fmt.Sprintf("%d bytes, %d exemplars", len(b), len(list))
	var builder labels.ScratchBuilder
	for i, e := range list {
		if i == 0 || i == len(list)-1 {
			x, err := format.ParseExemplar(e.T, e.Data, &builder)
			if err != nil {
				return "", err
			}
			words += fmt.Sprintf(", %s %v at %s", x.Labels, x.Value, instant(e.T))
		}
	}
	return words, err
}

// instant writes a timestamp for people, in UTC.
func instant(t int64) string { return time.UnixMilli(t).UTC().Format("2006-01-02T15:04:05.999Z") }
