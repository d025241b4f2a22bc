package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/cassia-db/cassia/storage/storagetest"
)

// discarded is a response writer that discards the answer.
type discarded struct{ *httptest.ResponseRecorder }

func (discarded) Write(p []byte) (int, error) { return io.Discard.Write(p) }

// cpuTime returns the CPU time used by the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRead reads all series of a large metric by remote read. Each series has one sample, in the head or sealed.
func BenchmarkRead(b *testing.B) {
	const n, at = 240_000, 3_000_000
	for _, sealed := range []bool{false, true} {
		store := storagetest.Open(b, storagetest.Pebble(b), storagetest.KeepForever)
		for from := 0; from < n; from += 5000 {
			batch := store.NewBatch("default")
			for i := from; i < from+5000; i++ {
				ls := labels.FromStrings(model.MetricNameLabel, "big", "host",
					fmt.Sprintf("host-%d.example.com", i%500),
					"id", fmt.Sprintf("%08x-%012d", uint32(i)*2654435761, i), "path",
					fmt.Sprint("/api/v1/items/", i%1000))
				storagetest.Add(b, batch, ls, storagetest.Samples(at, 1, 1, func(int) float64 { return float64(i) })...)
			}
			require.NoError(b, batch.Commit(b.Context()))
		}
		if sealed {
			require.NoError(b, store.SealAll(b.Context()))
		}
		h := apiOver(b, store, nil)
		for _, kind := range []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS,
			prompb.ReadRequest_SAMPLES} {
			body, err := (&prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
				Queries: []*prompb.Query{{
					StartTimestampMs: at - 600_000, EndTimestampMs: at + 60_000,
					Matchers: []*prompb.LabelMatcher{{Name: model.MetricNameLabel, Value: "big"}},
				}}}).Marshal()
			require.NoError(b, err)
			body = snappy.Encode(nil, body)
			b.Run(fmt.Sprintf("sealed=%v/%v", sealed, kind), func(b *testing.B) {
				b.ReportAllocs()
				ask := func() {
					w := discarded{httptest.NewRecorder()}
					h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Prefix+"/read", bytes.NewReader(body)))
					require.Equal(b, http.StatusOK, w.Code)
				}
				ask() // This loads the index.
				before := cpuTime()
				for b.Loop() {
					ask()
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N)/n/1e3, "cpu-µs/series")
			})
		}
	}
}
