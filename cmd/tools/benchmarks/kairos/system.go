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

// system is a server that stores its data in Cassandra.
type system interface {
	name() string
	// keyspace returns the keyspace of the system's data.
	keyspace() string
	// program returns the server program. It uses the Cassandra at hosts and stores other files below dir.
	program(root, dir, address string, hosts []string) promrig.Program
	// encode returns the compressed body of a request. endpoint returns its path and headers.
	encode(d *dataset, p part) ([]byte, error)
	endpoint() (path string, headers map[string]string)
	// finish brings all acknowledged samples into their final form.
	finish(ctx context.Context, url string) error
	// count returns the number of stored samples of the dataset.
	count(ctx context.Context, url string, d *dataset) (int64, error)
	// query returns the sum of all samples per zone and bucket in the dataset's span.
	query(ctx context.Context, url string, d *dataset) (sums, error)
}

// sums contains sums by zone and by the end of their bucket in milliseconds.
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

// difference returns an error if two results differ. Differences that can be caused by another order of additions are
// ignored.
func (s sums) difference(other sums) error {
	if len(s) != len(other) || s.points() != other.points() {
		return fmt.Errorf("the answers differ: %d zones and %d points, and %d and %d",
			len(s), s.points(), len(other), other.points())
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

// maxAnswer is the max size of a response in bytes.
const maxAnswer = 64 << 20

// post sends a body and returns the response and its status. If the status isn't 2xx, it returns an error.
func post(
	ctx context.Context, client *http.Client, url string, headers map[string]string, body io.Reader,
) ([]byte, int, error) {
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
