package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/cassia-db/cassia/cmd/internal/promrig"
)

// system is a server in front of Cassandra.
type system interface {
	name() string
	// keyspace is where it keeps its data.
	keyspace() string
	// program is the server, on a Cassandra, with what it keeps besides below dir.
	program(root, dir, address string, hosts []string) promrig.Program
	// encode makes the body of a request, compressed; its path and headers are those of endpoint.
	encode(d *dataset, p part) ([]byte, error)
	endpoint() (path string, headers map[string]string)
	// finish brings everything that was acknowledged into its final form.
	finish(ctx context.Context, url string) error
	// count is how many samples of the data set it has.
	count(ctx context.Context, url string, d *dataset) (int64, error)
	// query sums up all samples of a zone in each bucket of the data set's span.
	query(ctx context.Context, url string, d *dataset) (sums, error)
}

// sums are by zone and by the end of the bucket, in milliseconds.
type sums map[string]map[int64]float64

func (s sums) set(zone string, at int64, value float64) {
	if s[zone] == nil {
		s[zone] = map[int64]float64{}
	}
	s[zone][at] = value
}

func (s sums) points() int {
	n := 0
	for _, points := range s {
		n += len(points)
	}
	return n
}

// difference returns an error where the others differ by more than the order of adding up explains.
func (s sums) difference(other sums) error {
	if len(s) != len(other) || s.points() != other.points() {
		return fmt.Errorf("the answers differ: %d zones and %d points, and %d and %d", len(s), s.points(), len(other), other.points())
	}
	for zone, points := range s {
		for at, value := range points {
			o, ok := other[zone][at]
			if !ok || math.Abs(value-o) > 1e-9*max(math.Abs(value), math.Abs(o)) {
				return fmt.Errorf("the answers differ: %s at %s is %v and %v", zone, time.UnixMilli(at).UTC(), value, o)
			}
		}
	}
	return nil
}

// maxAnswer bounds an answer, bytes.
const maxAnswer = 64 << 20

// post sends a body and returns the answer, or an error for any status but 2xx.
func post(ctx context.Context, client *http.Client, url string, headers map[string]string, body io.Reader) ([]byte, int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, 0, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("POST %s: %s: %.300s", url, response.Status, answer)
	}
	return answer, response.StatusCode, err
}
