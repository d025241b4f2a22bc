package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/cassia-db/cassia/storage/chunk"
	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/rollup"
)

// Describe returns the content of a row as text, for operators. An error names the corrupt field.
func Describe(t *engine.Table, partition engine.Key, row engine.Row) (string, error) {
	switch t {
	case engine.Stage:
		return describeBlob(row.Value)
	case engine.Staged:
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return "", errors.New("not a number")
		}
		if row.Clustering[2].Int == StagedClosing {
			return "closing since " + FormatTime(v), nil
		}
		return "listed since " + FormatTime(v), nil
	case engine.Raw, engine.R5m, engine.R1h:
		return describeSealed(t, partition, row)
	case engine.Catalog:
		if len(partition) > 3 && partition[3].Int == CatalogCounts {
			return describeCounts(row.Clustering[0].Text, row.Value)
		}
	case engine.Metadata:
		m, err := ParseMetadata(row.Value)
		return fmt.Sprintf("type %s, unit %q, help %q", m.Type, m.Unit, m.Help), err
	case engine.Store:
		return string(row.Value), nil
	case engine.Windows:
		return ParseListing(row.Value).String(), nil
	case engine.Shards:
		n, err := ParseShards(row.Value)
		return fmt.Sprintf("%d shards", n), err
	case engine.Deletes:
		return describeDelete(row.Clustering[0].Text, row.Value)
	case engine.Defined:
		if isSealedRun(row) {
			run, err := ParseSealedRun(row)
			return fmt.Sprintf("seq %d to %d sealed", run.First, run.Last), err
		}
		return describeBlob(row.Value)
	case engine.Tails:
		v, n := binary.Varint(row.Value)
		if n <= 0 {
			return "", errors.New("not a number")
		}
		return fmt.Sprintf("seq %d", v), nil
	case engine.Held:
		return describeHeld(row.Value)
	case engine.Lease, engine.Processes, engine.Chosen:
		return string(row.Value), nil
	}
	return "-", nil
}

func describeSealed(t *engine.Table, partition engine.Key, row engine.Row) (string, error) {
	if row.Clustering[0].Int == KindLabels {
		var builder labels.ScratchBuilder
		ls, err := ParseLabels(row.Value, partition[3].Text, &builder)
		return ls.String(), err
	}
	if t != engine.Raw {
		return describeRollup(row.Value)
	}
	if row.Clustering[0].Int == KindExemplars {
		return describeExemplars(row.Value)
	}
	var samples chunk.Samples
	raw, err := DecodeRawChunk(row.Value, nil, &samples)
	if err != nil {
		return "", err
	}
	if samples.Len() == 0 {
		return fmt.Sprintf("%d bytes, completely deleted", len(row.Value)), nil
	}
	minT, maxT := TimeBounds(&samples)
	words := fmt.Sprintf("%d bytes, %d floats, %d histograms, from %s to %s", len(row.Value), len(samples.T),
		len(samples.H), FormatTime(minT), FormatTime(maxT))
	if n := raw.Exempt.Count(); n > 0 {
		words += fmt.Sprintf(", not affected by %d deletes", n)
	}
	if n := len(samples.V); n > 0 {
		words += fmt.Sprintf(", first %v, last %v", samples.V[0], samples.V[n-1])
	}
	return words, nil
}

// describeRollup describes a rollup chunk or a long chunk.
func describeRollup(b []byte) (string, error) {
	words, data := fmt.Sprintf("%d bytes", len(b)), b
	if rollup.IsLong(b) {
		var long rollup.Long
		if err := long.Parse(b); err != nil {
			return "", err
		}
		words, data = fmt.Sprintf("%s, merged from %d chunks", words, len(long.Parts)), long.Chunk
	}
	info, err := rollup.Header(data)
	if err != nil {
		return "", err
	}
	var buckets rollup.Buckets
	if err := rollup.Decode(data, rollup.AllColumns, &buckets); err != nil {
		return "", err
	}
	if info.Count == 0 {
		return words + ", completely deleted", nil
	}
	width := time.Duration(info.Width) * time.Millisecond
	return fmt.Sprintf("%s, %d buckets of %v, ending from %s to %s", words, info.Count, width, FormatTime(info.MinEnd),
		FormatTime(info.MaxEnd)), nil
}

func describeBlob(b []byte) (string, error) {
	var r BlobReader
	if err := r.Open(b); err != nil {
		return "", err
	}
	c := &blobCounts{minT: math.MaxInt64, maxT: math.MinInt64}
	if err := r.Walk(c); err != nil {
		return "", err
	}
	words := fmt.Sprintf("%d bytes, epoch %d, %d series defined, %d floats, %d histograms", len(b), r.Epoch, c.series,
		c.floats, c.histograms)
	if c.exemplars > 0 {
		words += fmt.Sprintf(", %d exemplars", c.exemplars)
	}
	if c.floats+c.histograms+c.exemplars > 0 {
		words += fmt.Sprintf(", from %s to %s", FormatTime(c.minT), FormatTime(c.maxT))
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

func describeExemplars(b []byte) (string, error) {
	list, _, err := DecodeRawExemplars(b, nil)
	words := fmt.Sprintf("%d bytes, %d exemplars", len(b), len(list))
	var builder labels.ScratchBuilder
	for i, e := range list {
		if i == 0 || i == len(list)-1 {
			x, err := ParseExemplar(e.T, e.Data, &builder)
			if err != nil {
				return "", err
			}
			words += fmt.Sprintf(", %s %v at %s", x.Labels, x.Value, FormatTime(e.T))
		}
	}
	return words, err
}

func describeDelete(id string, value []byte) (string, error) {
	if id == ClearanceID {
		c, err := ParseClearance(value)
		return fmt.Sprintf("all deletes requested before %s are cleaned, except %d", FormatTime(c.Before),
			c.Standing.Count()), err
	}
	d, err := ParseTombstone(id, value)
	if err != nil {
		return "", err
	}
	words := fmt.Sprintf("%v, from %s to %s, requested at %s", d.Matchers, FormatTime(d.Start),
		FormatTime(d.End), FormatTime(d.When))
	if d.Announced {
		words += ", announced but not in effect"
	}
	return words, nil
}

func describeHeld(value []byte) (string, error) {
	v, err := ParseHeld(value)
	if err != nil {
		return "", err
	}
	blob, err := v.Unpack()
	if err != nil {
		return "", err
	}
	words, err := describeBlob(blob)
	return fmt.Sprintf("%d bytes, %d samples: %s", len(value), v.Samples, words), err
}

// FormatTime formats a timestamp in milliseconds as RFC 3339, in UTC. Times that RFC 3339 can't express are only in
// damaged or hostile rows, and are described as impossible.
func FormatTime(t int64) string {
	at := time.UnixMilli(t).UTC()
	if y := at.Year(); y < 0 || y > 9999 {
		return fmt.Sprintf("the impossible time %d ms", t)
	}
	return at.Format("2006-01-02T15:04:05.999Z")
}
