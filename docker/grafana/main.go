// Grafana-datasource runs the back end of Grafana's Prometheus data source as a separate program. It forwards the
// requests that a browser would send. Grafana's code sends the queries to Prometheus and parses the responses. Cassia's
// tests start this program.
//
//	grafana-datasource --url=http://127.0.0.1:9201 --listen=127.0.0.1:3000
//
//	POST /api/ds/query   queries with refId, expr, range, instant, …, as panels send them ─► frames
//	GET  /api/health     "Save & test"
//	     /api/resources/ requests of editors and variables, by the path in Prometheus' API
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/gtime"
	"github.com/grafana/grafana/pkg/promlib"
	"github.com/grafana/grafana/pkg/promlib/intervalv2"
)

// source is a configured data source.
type source struct {
	service *promlib.Service
	context backend.PluginContext
}

// request is a request of a panel. Times are in milliseconds since 1970.
type request struct {
	From, To string
	Queries  []json.RawMessage
	// MinInterval is the panel's min interval, or "". A browser computes intervalMs from it; here, dataQueries does.
	MinInterval   string
	MaxDataPoints int64
}

func main() {
	url := flag.String("url", "http://127.0.0.1:9201", "The Prometheus API that is asked.")
	address := flag.String("listen", "127.0.0.1:3000", "Where to listen.")
	scrape := flag.String("scrape-interval", "15s", "The data source's setting of this name.")
	flag.Parse()
	settings, err := json.Marshal(map[string]string{"httpMethod": http.MethodPost, "timeInterval": *scrape})
	if err != nil {
		log.Fatal(err)
	}
	s := source{promlib.NewService(nil, backend.NewLoggerWith(), nil), backend.PluginContext{
		OrgID: 1, PluginID: "prometheus",
		DataSourceInstanceSettings: &backend.DataSourceInstanceSettings{
			ID: 1, UID: "cassia", Type: "prometheus", Name: "Cassia", URL: *url, JSONData: settings,
		},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/ds/query", s.query)
	mux.HandleFunc("GET /api/health", s.health)
	mux.HandleFunc("/api/resources/", s.resource)
	log.Fatal(http.ListenAndServe(*address, mux))
}

func (s source) query(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	queries, err := asked.dataQueries()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := s.service.QueryData(r.Context(), &backend.QueryDataRequest{
		PluginContext: s.context, Queries: queries,
	})
	reply(w, answer, err)
}

// dataQueries returns the queries, with the interval that a browser would compute.
func (r request) dataQueries() (queries []backend.DataQuery, err error) {
	var times backend.TimeRange
	if times.From, err = milliseconds(r.From); err != nil {
		return nil, err
	}
	if times.To, err = milliseconds(r.To); err != nil {
		return nil, err
	}
	least, err := gtime.GetIntervalFrom("", r.MinInterval, 0, 15*time.Second)
	if err != nil {
		return nil, err
	}
	interval := intervalv2.NewCalculator().Calculate(times, least, r.MaxDataPoints).Value
	for _, text := range r.Queries {
		fields := map[string]any{}
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, err
		}
		fields["intervalMs"], fields["maxDataPoints"] = interval.Milliseconds(), r.MaxDataPoints
		if text, err = json.Marshal(fields); err != nil {
			return nil, err
		}
		id, _ := fields["refId"].(string)
		queries = append(queries, backend.DataQuery{
			RefID: id, MaxDataPoints: r.MaxDataPoints, Interval: interval, TimeRange: times, JSON: text,
		})
	}
	return queries, nil
}

func milliseconds(text string) (time.Time, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms).UTC(), err
}

func (s source) health(w http.ResponseWriter, r *http.Request) {
	result, err := s.service.CheckHealth(r.Context(), &backend.CheckHealthRequest{PluginContext: s.context})
	if err != nil {
		reply(w, nil, err)
		return
	}
	reply(w, map[string]any{
		"status": result.Status.String(), "message": result.Message, "details": json.RawMessage(result.JSONDetails),
	}, nil)
}

func (s source) resource(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/resources/")
	call := backend.CallResourceRequest{
		PluginContext: s.context, Path: path, Method: r.Method, URL: path + "?" + r.URL.RawQuery, Body: body,
	}
	err = s.service.CallResource(
		r.Context(), &call, backend.CallResourceResponseSenderFunc(func(answer *backend.CallResourceResponse) error {
			for name, values := range answer.Headers {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Status)
			_, err := w.Write(answer.Body)
			return err
		}),
	)
	if err != nil {
		reply(w, nil, err)
	}
}

func reply(w http.ResponseWriter, answer any, err error) {
	if err == nil {
		var body []byte
		if body, err = json.Marshal(answer); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(body)
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}
