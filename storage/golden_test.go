package storage

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/retention"
)

// goldenRow describes the value of a row that a release has written. words returns a description of the value. again
// decodes and encodes the value. again is nil if the current release writes another version.
type goldenRow struct {
	words func(value []byte) (string, error)
	again func(value []byte) ([]byte, error)
}

const goldenID = "0123456789abcdef"

// goldenRows describes the files of testdata/golden, by name.
var goldenRows = map[string]goldenRow{
	"delete-v1":           deleteGolden,
	"delete-v1-announced": deleteGolden,
	"delete-v1-held":      deleteGolden,
	"delete-v1-cleared": {
		describe(engine.Deletes, engine.Key{engine.Text(format.ClearanceID)}),
		func(value []byte) ([]byte, error) {
			c, err := format.ParseClearance(value)
			return format.AppendClearance(nil, c), err
		},
	},
	"worked-off-v1": {
		describe(engine.Defined, format.SealedRunKey(goldenID, 7)),
		func(value []byte) ([]byte, error) {
			run, err := format.ParseSealedRun(engine.Row{Clustering: format.SealedRunKey(goldenID, 7), Value: value})
			return format.AppendSealedRun(run.Last), err
		},
	},
	"retentions-v1": {
		func(value []byte) (string, error) {
			var k retention.Advertised
			err := json.Unmarshal(value, &k)
			return k.Text(), err
		},
		func(value []byte) ([]byte, error) {
			var k retention.Advertised
			if err := json.Unmarshal(value, &k); err != nil {
				return nil, err
			}
			return json.Marshal(k)
		},
	},
	"counts-v1-head": countsGolden(format.CountsKey(7, 0), countsRow(0)),
	"counts-v2-part": countsGolden(format.CountsKey(7, 1), countsRow(1)),
	"counts-v3-change": countsGolden(format.CountsChangeKey(7, 6), func(value []byte) ([]byte, error) {
		c, err := format.ParseCountsChange(value)
		return format.AppendCountsChange(nil, c), err
	}),
	"held-v1": {describe(engine.Held, nil), func(value []byte) ([]byte, error) {
		v, err := format.ParseHeld(value)
		if err != nil {
			return nil, err
		}
		blob, err := v.Unpack()
		return format.AppendHeld(nil, v, blob), err
	}},
}

// countsGolden returns a goldenRow for a row of counts with the given key and function again.
func countsGolden(key engine.Key, again func(value []byte) ([]byte, error)) goldenRow {
	return goldenRow{func(value []byte) (string, error) {
		return format.Describe(
			engine.Catalog, format.CountsPartition(20_574, "t"), engine.Row{Clustering: key, Value: value},
		)
	}, again}
}

// goldenCounts contains the counts of the golden rows.
var goldenCounts = format.Counts{
	CountsHead: format.CountsHead{Series: 305, AllMetrics: 3, AllLabels: 3},
	Metrics: []format.NamedCount{
		{Name: "http_requests_total", Count: 300}, {Name: "http_errors_total", Count: 4}, {Name: "up", Count: 1},
	},
	Labels: []format.LabelCounts{
		{NamedCount: format.NamedCount{Name: "instance", Count: 101}, Values: []format.NamedCount{{Name: "host-1:9100", Count: 204}, {Name: "host-12:9100", Count: 101}}},
		{NamedCount: format.NamedCount{Name: "__name__", Count: 3}},
		{NamedCount: format.NamedCount{Name: "job", Count: 1}, Values: []format.NamedCount{{Name: "web", Count: 305}}},
	},
}

// countsRow returns a function that checks that row n of the golden counts, with the given value, decodes to
// goldenCounts, and encodes the row again.
func countsRow(n int) func([]byte) ([]byte, error) {
	return func(value []byte) ([]byte, error) {
		rows, err := format.EncodeCounts(&goldenCounts)
		if err != nil {
			return nil, err
		}
		h, err := format.ParseCountsHead(rows[0])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			h, err = format.ParseCountsHead(value)
		} else {
			rows[1] = value
		}
		if err != nil {
			return nil, err
		}
		body, err := format.AppendCountsPart(nil, rows[1])
		if err != nil {
			return nil, err
		}
		c, err := format.ParseCounts(h, body)
		if err != nil {
			return nil, err
		}
		again, err := format.EncodeCounts(c)
		if err != nil {
			return nil, err
		}
		return again[n], nil
	}
}

var deleteGolden = goldenRow{
	describe(engine.Deletes, engine.Key{engine.Text(goldenID)}),
	func(value []byte) ([]byte, error) {
		d, err := format.ParseTombstone(goldenID, value)
		if err != nil {
			return nil, err
		}
		return format.AppendTombstone(nil, d), nil
	},
}

// describe returns a function that describes the value of a row of table t with this key.
func describe(t *engine.Table, key engine.Key) func(value []byte) (string, error) {
	return func(value []byte) (string, error) {
		return format.Describe(t, nil, engine.Row{Clustering: key, Value: value})
	}
}

// TestGoldenRows checks that rows written by earlier releases are still read in the same way, and that the current
// encodings haven't changed.
func TestGoldenRows(t *testing.T) {
	if *rewrite {
		for name, value := range goldenValues() {
			words, err := goldenRows[name].words(value)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Join("testdata", "golden"), 0o755))
			require.NoError(t, os.WriteFile(
				filepath.Join("testdata", "golden", name+".txt"), []byte(words+"\n"+hex.EncodeToString(value)+"\n"),
				0o644,
			))
		}
	}
	for name, row := range goldenRows {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".txt"))
			require.NoError(t, err, "write it with -rewrite")
			words, digits, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
			value, err := hex.DecodeString(digits)
			require.NoError(t, err)
			got, err := row.words(value)
			require.NoError(t, err)
			require.Equal(t, words, got)
			if row.again != nil {
				again, err := row.again(value)
				require.NoError(t, err)
				require.Equal(
					t, digits, hex.EncodeToString(again),
					"the format has changed: it needs a new version, so that old rows stay readable",
				)
			}
		})
	}
}

// goldenValues returns values in the current encodings. They may only replace files that no release has written.
func goldenValues() map[string][]byte {
	d := format.Tombstone{ID: goldenID, When: 1777636800000, Start: -5, End: 1777636799999, Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "up"),
		labels.MustNewMatcher(labels.MatchNotEqual, "a", ""),
		labels.MustNewMatcher(labels.MatchRegexp, "b", "x.*"), labels.MustNewMatcher(labels.MatchNotRegexp, "c", "y|z"),
	}}
	values := map[string][]byte{"delete-v1": format.AppendTombstone(nil, &d)}
	d.Held = []format.HeldCut{{Cluster: "eu", Writer: goldenID, Seq: 1}, {Cluster: "us", Writer: goldenID, Seq: 300}}
	values["delete-v1-held"] = format.AppendTombstone(nil, &d)
	d.Announced = true
	values["delete-v1-announced"] = format.AppendTombstone(nil, &d)
	values["delete-v1-cleared"] = format.AppendClearance(
		nil, format.Clearance{Before: 1777464000001, Standing: format.TombstoneIDs(goldenID + "fedcba9876543210")},
	)
	retentions, _ := json.Marshal(retention.Advertised{
		All: retention.KeptMS{RawMS: 2592000000, FiveMinutesMS: 31536000000, OneHourMS: 0}, Leaving: true,
		Tenants: map[string]retention.KeptMS{"brief": {RawMS: 86400000}},
		Classes: map[string]retention.KeptMS{"debug": {RawMS: 604800000, FiveMinutesMS: 604800000, OneHourMS: 604800000}},
	})
	values["retentions-v1"] = retentions
	counts, _ := format.EncodeCounts(&goldenCounts)
	values["counts-v1-head"], values["counts-v2-part"] = counts[0], counts[1]
	values["counts-v3-change"] = format.AppendCountsChange(nil, format.CountsChange{Added: 300, Gone: 1})
	values["worked-off-v1"] = format.AppendSealedRun(300)
	held := format.HeldValue{MinT: 1777636799000, MaxT: 1777636900000, Reach: 1777636801000, Samples: 3}
	var w format.BlobWriter
	w.Reset(0, 0)
	for i, at := range []int64{held.MinT, held.Reach, held.MaxT} {
		w.Define("t", labels.FromStrings("__name__", "m", "i", string(rune('a'+i))))
		w.Float(uint32(i+1), at, 0, 0x3ff0000000000000)
	}
	values["held-v1"] = format.AppendHeld(nil, held, w.Finish())
	return values
}
