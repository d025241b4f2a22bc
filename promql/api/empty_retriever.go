package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	promstorage "github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// emptyRetriever implements the parts of Prometheus that Cassia doesn't have, such as scrape targets, and parts that
// aren't configured: rules and Alertmanagers. It returns empty lists, like a Prometheus without configuration.
type emptyRetriever struct{}

func (emptyRetriever) ScrapePools() []string                       { return []string{} }
func (emptyRetriever) TargetsActive() map[string][]*scrape.Target  { return nil }
func (emptyRetriever) TargetsDropped() map[string][]*scrape.Target { return nil }
func (emptyRetriever) TargetsDroppedCounts() map[string]int        { return map[string]int{} }
func (emptyRetriever) Alertmanagers() []*url.URL                   { return nil }
func (emptyRetriever) DroppedAlertmanagers() []*url.URL            { return nil }
func (emptyRetriever) RuleGroups() []*rules.Group                  { return nil }
func (emptyRetriever) AlertingRules() []*rules.AlertingRule        { return nil }
func (emptyRetriever) ScrapePoolConfig(name string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("scrape pool %q not found", name)
}

// noExemplars returns no exemplars, like a Prometheus that doesn't store them.
type noExemplars struct{}

func (noExemplars) ExemplarQuerier(context.Context) (promstorage.ExemplarQuerier, error) {
	return noExemplars{}, nil
}

func (noExemplars) Select(_, _ int64, _ ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return []exemplar.QueryResult{}, nil
}

// errNoTSDB is returned by operations that need Prometheus' own storage, or a field of Options that isn't set.
var errNoTSDB = errors.New("not supported: Cassia has no Prometheus TSDB")

// noTSDB is passed to Prometheus' API as its storage.
type noTSDB struct{}

func (noTSDB) CleanTombstones() error { return errNoTSDB }
func (noTSDB) Delete(context.Context, int64, int64, ...*labels.Matcher) error {
	return errNoTSDB
}
func (noTSDB) Snapshot(string, bool) error            { return errNoTSDB }
func (noTSDB) Stats(string, int) (*tsdb.Stats, error) { return nil, errNoTSDB }
func (noTSDB) BlockMetas() ([]tsdb.BlockMeta, error)  { return []tsdb.BlockMeta{}, nil }

// WALReplayStatus always returns a finished replay. The state of the store is returned by /-/ready instead.
func (noTSDB) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }
