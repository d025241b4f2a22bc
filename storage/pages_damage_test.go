package storage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/engine"
	"github.com/cassia-db/cassia/storage/format"
	"github.com/cassia-db/cassia/storage/page"
	"github.com/cassia-db/cassia/storage/rollup"
)

// damagedPages is a store of two metrics in pages of two slots. Some series are in a labels page of their own, and one
// delete isn't cleaned.
type damagedPages struct {
	*deleteModel
	damagedStore // for its method answers
}

func newDamagedPages(t *testing.T) *damagedPages {
	d := &damagedPages{deleteModel: newPagedModel(t, 40, nil)}
	first := d.labels
	d.some("023", 3, deletedAgo, deletedAgo+15*time.Second)
	d.some("1", deletedValue, deletedAgo, deletedAgo+15*time.Second)
	d.some("0123", 4, 5*time.Hour)
	require.NoError(t, d.SealAll(t.Context()))
	d.labels = nil
	for i := range 20 {
		d.labels = append(
			d.labels, labels.FromStrings(labels.MetricName, "up", "host", fmt.Sprint("other", i), "group", "0"),
		)
	}
	d.some("0", 3, deletedAgo, deletedAgo+15*time.Second)
	require.NoError(t, d.SealAll(t.Context()))
	d.labels = slices.Concat(first, d.labels)
	d.deleteGroup()
	return d
}

// page returns the oldest page of metric up that has the given kind and contains the deleted series.
func (d *damagedPages) page(res rollup.Resolution, kind int64) storedPage {
	pages := d.pagesIn(d.pagedPartitions("default"))
	at := slices.IndexFunc(pages, func(p storedPage) bool {
		parsed, err := page.Parse(p.value)
		require.NoError(d.t, err)
		return p.res == res && p.key[3].Text == "up" && p.clustering[0].Int == kind && parsed.Len() == 40
	})
	require.GreaterOrEqual(d.t, at, 0)
	return pages[at]
}

// again opens the store again on the same engine, with empty caches.
func (d *damagedPages) again() {
	require.NoError(d.t, d.Store.Close())
	d.Store = openReady(d.t, d.testStore.eng, d.testStore.opts)
}

// ask requires the answers to be right, except for missing samples that warnings name. It returns the number of missing
// samples, and the warnings.
func (d *damagedPages) ask(about string) (missing int, told []string) {
	t, _ := d.t.(*testing.T)
	t.Helper()
	got, told, err := d.answers(d.Store, "default")
	require.NoError(t, err)
	want := map[string][]sample{}
	for name, byTime := range d.deleteModel.want {
		for t, v := range byTime {
			want[name] = append(want[name], sample{t, v})
		}
		missing += len(byTime) - len(got[name])
	}
	requireNamed(t, want, got, told, about)
	for _, text := range told {
		require.Contains(t, text, `metric "up", tenant "default", from `, about)
		require.NotContains(t, text, "\n", about)
	}
	return missing, told
}

// trouble reports whether err isn't nil. It requires such an error to name the damage.
func (d *damagedPages) trouble(err error) bool {
	if err == nil {
		return false
	}
	require.ErrorIs(d.t, err, engine.ErrCorrupt)
	require.ErrorContains(d.t, err, "_pages, partition (window ")
	return true
}

// TestDamagedPages damages pages one after the other. Missing samples must be reported and counted, and other samples
// returned. Nothing may be lost while late samples are sealed or deletes are cleaned. All answers must be right once
// the page is repaired.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		res  rollup.Resolution
		kind int64
		// seals is true if late samples can be sealed despite the damage, cleans if deletes can be cleaned.
		seals, cleans bool
	}{
		{rollup.Raw, format.KindChunk, true, false},
		{rollup.Raw, format.KindLabels, false, false},
		{rollup.FiveMinutes, format.KindChunk, true, true},   // It is recomputed from raw chunks.
		{rollup.FiveMinutes, format.KindLabels, true, false}, // The ids are also in a page of raw rows.
		{rollup.OneHour, format.KindChunk, true, true},       // It is recomputed from 5m chunks.
		{rollup.OneHour, format.KindLabels, true, false},
	} {
		t.Run(fmt.Sprint(c.res, " ", c.kind), func(t *testing.T) {
			t.Parallel()
			d := newDamagedPages(t)
			d.again()
			missing, told := d.ask("whole")
			require.Zero(t, missing)
			require.Empty(t, told)
			shown, told, err := d.others(d.Store, "default")
			require.NoError(t, err)
			require.Empty(t, told)

			whole := d.page(c.res, c.kind)
			bad := bytes.Clone(whole.value)
			bad[len(bad)/2] ^= 0x10
			d.putPage(whole, bad)
			d.again()
			missing, _ = d.ask("damaged")
			require.Equal(t, c.res == rollup.Raw, missing > 0)
			found, told, err := d.others(d.Store, "default")
			require.NoError(t, err)
			require.Subset(t, shown, found)
			require.True(t, len(found) == len(shown) || len(told) > 0)
			require.True(t, missing > 0 || len(told) > 0)
			require.Positive(t, d.Store.Damaged())
			require.Positive(t, testutil.ToFloat64(d.metrics.corrupt.WithLabelValues(format.TableOf(c.res).Name)))
			require.Regexp(t, `unreadable: .*metric "up".*_pages, partition`, strings.Join(d.problems(), "; "))

			d.again()
			require.Equal(t, c.cleans, !d.trouble(d.CleanTombstones(t.Context(), "default")))
			require.Equal(t, c.cleans, d.openDeletes() == 0)
			d.ask("cleaned, or not")
			d.again()
			d.some("0123", 8, deletedAgo+time.Minute)
			require.Equal(t, c.seals, !d.trouble(d.SealAll(t.Context())))
			d.ask("sealed, or not")
			d.again()
			d.ask("started")

			d.putPage(whole, whole.value)
			d.again()
			// Rollups with samples that are missing because of the damage are recomputed by the next seal.
			if c.res == rollup.Raw {
				d.some("0123", 9, deletedAgo+time.Minute-time.Second)
			}
			require.NoError(t, d.SealAll(t.Context()))
			require.NoError(t, d.CleanTombstones(t.Context(), "default"))
			require.Zero(t, d.openDeletes())
			d.compare("mended")
		})
	}
}

// TestLabelsPageIsGone removes a labels page. Readers of its data pages must get a warning, and readers of other pages
// their samples.
func TestLabelsPageIsGone(t *testing.T) {
	t.Parallel()
	for _, res := range []rollup.Resolution{rollup.Raw, rollup.FiveMinutes} {
		d := newDamagedPages(t)
		whole := d.page(res, format.KindLabels)
		d.putPage(whole, nil)
		d.again()
		missing, _ := d.ask("gone")
		require.Equal(t, res == rollup.Raw, missing > 0)
		d.again()
		require.Regexp(t, fmt.Sprintf("labels page %x is missing|%s: .* the chunk belongs to a series without labels",
			whole.clustering[4].Text, format.TableOf(res)), strings.Join(d.problems(), "; "))
		d.putPage(whole, whole.value)
		d.again()
		d.compare("mended")
	}
}
