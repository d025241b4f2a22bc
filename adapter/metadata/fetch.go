package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/prometheus/common/model"
)

// errorBytes bounds the part of an error response that is read and logged.
const errorBytes = 300

// fetch requests the metadata of a source and returns the number of metrics. It calls Note for each metric as it is
// decoded; if the response is truncated, the metrics decoded before are kept.
func (p *Poller) fetch(ctx context.Context, s Source) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL.JoinPath("api/v1/metadata").String(), nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := s.Client.Do(r)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // Its text repeats the URL.
		}
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }() // decoding has checked the response
	if answer.StatusCode != http.StatusOK {
		return 0, statusError(answer)
	}
	found, err := decode(http.MaxBytesReader(nil, answer.Body, p.o.MaxBytes), func(metric string, m description) {
		p.o.Note(s.Tenant, []byte(metric), kindOf(m.Type), []byte(m.Unit), []byte(m.Help))
	})
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = fmt.Errorf("the response has more than %d MiB; the rest was not read", large.Limit>>20)
	}
	return found, err
}

func statusError(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, errorBytes)) // Best effort: the text is only for the log.
	err := fmt.Errorf("the server returned %s: %s", answer.Status,
		strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "\uFFFD")), " "))
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w; set the credentials with --metadata.http.config.file", err)
	case http.StatusNotFound:
		return fmt.Errorf("%w; the URL must be the base URL, to which /api/v1/metadata is appended", err)
	}
	return err
}

// description is the metadata of a metric in a response.
type description struct{ Type, Unit, Help string }

// decode reads a response of Prometheus' API:
//
//	{"status": "success", "data": {"METRIC": [{"type": "counter", "unit": "", "help": "…"}, …], …}}
//
// It holds one metric in memory at a time.
func decode(r io.Reader, note func(metric string, m description)) (found int, err error) {
	d := json.NewDecoder(r)
	status, failure := "", ""
	err = eachField(d, func(key string) error {
		switch key {
		case "status":
			return d.Decode(&status)
		case "error":
			return d.Decode(&failure)
		case "data":
			return eachField(d, func(metric string) error {
				var list []description
				if err := d.Decode(&list); err != nil {
					return err
				}
				for _, m := range list {
					note(metric, m)
				}
				found++
				return nil
			})
		}
		var other json.RawMessage
		return d.Decode(&other)
	})
	if err != nil {
		return found, fmt.Errorf("not a valid response of Prometheus' /api/v1/metadata: %w", err)
	}
	if status != "success" {
		return found, fmt.Errorf("the server returned %q: %s", status, failure)
	}
	return found, nil
}

// eachField calls f for each key of the next object, or not at all if the next value is null. f must read the key's
// value.
func eachField(d *json.Decoder, f func(key string) error) error {
	begin, err := d.Token()
	if err != nil {
		return err
	}
	if begin == nil {
		return nil
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("%v instead of an object", begin)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(key.(string)); err != nil { // Token returns keys of objects as strings, or an error.
			return err
		}
	}
	_, err = d.Token()
	return err
}

// kindOf returns text if it is one of Prometheus' metric types, otherwise "unknown".
func kindOf(text string) string {
	switch kind := model.MetricType(text); kind {
	case model.MetricTypeCounter, model.MetricTypeGauge, model.MetricTypeHistogram, model.MetricTypeGaugeHistogram,
		model.MetricTypeSummary, model.MetricTypeInfo, model.MetricTypeStateset:
		return text
	}
	return string(model.MetricTypeUnknown)
}
